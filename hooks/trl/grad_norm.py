"""The gradient's norm, without waiting for a device.

transformers leaves it on the device until it logs. Reading it there would wait for the optimizer's step, so it is read
in the next step, where TRL has just waited for the device itself, and told with that step.
"""

from __future__ import annotations

from typing import Any


class GradNorm:
    """The newest norm.

    >>> norm = GradNorm()
    >>> norm.heard(0.5), norm.taken(), norm.taken()
    (None, 0.5, None)
    """

    def __init__(self) -> None:
        self._on_device: Any = None
        self._known: float | None = None

    def heard(self, norm: Any) -> None:
        """Take what `_get_grad_norm` returned: a number, a tensor, or None."""
        device = getattr(norm, "device", None)
        if device is None or device.type == "cpu":
            self._known = None if norm is None else float(norm)
        else:
            self._on_device = norm.detach()

    def settle(self) -> None:
        """Read what is on the device, where nothing has to be waited for."""
        if self._on_device is not None:
            self._known, self._on_device = float(self._on_device), None

    def taken(self) -> float | None:
        """The norm, once."""
        known, self._known = self._known, None
        return known
