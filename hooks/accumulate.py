"""Sum up the tensors of a step, micro-batch by micro-batch, without keeping them.

`measure` is the reference, in numpy; torch tensors go to `trimtab.hooks.accumulate_torch`, which gives the same vector
without ever waiting for the device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.controls import RatioReference
from trimtab.hooks.layout import SIZE, SKETCHES, TENSORS, log_ratios, parts
from trimtab.hooks.records import TokenBatch
from trimtab.hooks.sketch import CELLS, MAX_LOG_RATIO, cell_of

if TYPE_CHECKING:
    from trimtab.hooks.accumulate_torch import DeviceSums


@dataclass(frozen=True, slots=True)
class Drained:
    """A step's vector on its way to the host."""

    ready: Callable[[], bool]
    """True once `read` would not wait."""
    read: Callable[[], NDArray[np.float64]]
    """The vector, [SIZE]."""


class Accumulator:
    """Adds token batches up until they are drained, once a step.

    >>> accumulator = Accumulator()
    >>> logprobs = np.full((2, 3), -1.0, dtype=np.float32)
    >>> tensors = {"train_logprobs": logprobs, "old_logprobs": logprobs, "advantages": [1.0, -1.0]}
    >>> accumulator.add(TokenBatch(**tensors, loss_mask=np.ones((2, 3))))
    >>> from trimtab.hooks.layout import assemble
    >>> assemble(accumulator.drain().read()).positive.tokens
    3
    """

    def __init__(self) -> None:
        self._host = np.zeros(SIZE)
        self._device: DeviceSums | None = None

    def add(self, batch: TokenBatch, reference: RatioReference = "recomputed") -> None:
        """Add one batch; `reference` names the denominator of the loss's ratio.

        Raises:
            ValueError: a tensor has the wrong shape; the message names it.
        """
        if not is_torch(batch.train_logprobs):
            self._host += measure(batch, reference)
            return
        if self._device is None:
            from trimtab.hooks.accumulate_torch import DeviceSums

            self._device = DeviceSums()
        self._device.add(batch, reference)

    def drain(self) -> Drained:
        """Take what was added since the last drain. On a device the copy to the host is only started."""
        host, self._host = self._host, np.zeros(SIZE)
        if self._device is None:
            return Drained(lambda: True, lambda: host)
        device = self._device.drain()
        return Drained(device.ready, lambda: host + device.read())


def is_torch(value: Any) -> bool:
    """Whether `value` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def measure(batch: TokenBatch, reference: RatioReference) -> NDArray[np.float64]:
    """[SIZE] vector of one batch of arrays.

    Raises:
        ValueError: a tensor has the wrong shape; the message names it.
    """
    vector = np.zeros(SIZE)
    part = parts(vector)
    live = np.asarray(batch.loss_mask) != 0
    values = {
        name: _plane(name, getattr(batch, name), live.shape) for name in TENSORS if getattr(batch, name) is not None
    }
    finite = {name: np.isfinite(value) for name, value in values.items()}
    for name, value in values.items():
        part["nonfinite"][TENSORS.index(name)] += (
            (np.isnan(value) & live).sum(),
            ((value == np.inf) & live).sum(),
            ((value == -np.inf) & live).sum(),
            (~finite[name] & ~live).sum(),
        )
    advantages = values["advantages"]
    counted = live & finite["advantages"]
    signs = [counted & (advantages < 0), counted & (advantages == 0), counted & (advantages > 0)]
    for sketch, (numerator, denominator) in log_ratios(batch, reference).items():
        i = SKETCHES.index(sketch)
        part["observed"][i] += 1
        usable = finite[numerator] & finite[denominator]
        for s, sign in enumerate(signs):
            log_ratio = values[numerator][sign & usable] - values[denominator][sign & usable]
            part["counts"][i, s] += np.bincount(cell_of(log_ratio), minlength=CELLS)
            x = np.clip(log_ratio.astype(np.float64), -MAX_LOG_RATIO, MAX_LOG_RATIO)
            ratio = np.exp(x)
            part["sums"][i, s] += (x.size, x.sum(), x @ x, ratio.sum(), ratio @ ratio, (np.expm1(x) - x).sum())
    for s, sign in enumerate(signs):
        entropy = np.zeros(0)
        if "entropy" in values:
            entropy = values["entropy"][sign & finite["entropy"]].astype(np.float64)
        size = np.abs(advantages[sign]).sum(dtype=np.float64)
        part["totals"][s] += (sign.sum(), size, entropy.size, entropy.sum(), entropy @ entropy)
    return vector


def _plane(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    array = np.asarray(value, dtype=np.float32)
    if name == "advantages":
        if array.ndim == 1 and len(shape) == 2:
            array = array[:, None]
        if array.ndim == len(shape) and array.shape[:1] == shape[:1] and array.shape[1:] in (shape[1:], (1,)):
            return np.broadcast_to(array, shape)
    elif array.shape == shape:
        return array
    raise ValueError(f"{name}: shape {array.shape} does not fit loss_mask's {shape}")
