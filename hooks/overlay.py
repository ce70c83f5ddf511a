"""The controls in effect: the run's own, with the overrides that were accepted laid over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trimtab.hooks.controls import Controls, ControlValue
from trimtab.hooks.fence import Accepted, settled


class Overlay:
    """What one process obeys. What is accepted takes effect when it is laid over the run's own controls, no earlier.

    >>> overlay = Overlay(Controls(clip_high=0.3))
    >>> overlay.resume(Controls(clip_high=0.3), {"clip_low": 0.1}, generation=4)
    >>> overlay.lay()
    >>> overlay.controls == Controls(clip_low=0.1, clip_high=0.3)
    True
    """

    def __init__(self, base: Controls) -> None:
        self.controls = base
        """In effect now."""
        self.accepted = Accepted()
        self._base = base
        self._spent: dict[str, str] = {}
        """Overrides that have had their time, and why they are refused until they have been lifted."""

    def lay(self, base: Controls | None = None) -> None:
        """Put what is accepted in effect over `base`, the run's own controls from now on; None leaves those as they
        are."""
        base = base or self._base
        self.accepted = settled(base, self.accepted)
        self.controls = base.overlaid(self.accepted.overrides)
        self._base = base

    def accept(self, accepted: Accepted | None) -> None:
        """Accept what the fence let through, where it is newer than what is accepted."""
        if accepted is not None and accepted.generation > self.accepted.generation:
            self.accepted = accepted
            self._spent = {name: reason for name, reason in self._spent.items() if name in accepted.overrides}
            for name, reason in self._spent.items():
                self.refuse(name, reason)

    def spend(self, name: str, reason: str) -> None:
        """Refuse the override of control `name`, now and in every command to come until one does without it."""
        self.refuse(name, reason)
        self._spent[name] = reason

    def resume(self, base: Controls, overrides: Mapping[str, ControlValue], generation: int) -> None:
        """Accept what a checkpoint recorded.

        Raises:
            ControlError: an override that `Controls` does not take; nothing has changed then.
        """
        base.overlaid(overrides)
        self.accepted = Accepted(generation=generation, overrides=dict(overrides))

    def refuse(self, name: str, reason: str) -> None:
        """Take the override of control `name` out of what is accepted, and note why."""
        left = {other: value for other, value in self.accepted.overrides.items() if other != name}
        refusals = (*self.accepted.refusals, f"{name}: {reason}")
        self.accepted = replace(self.accepted, overrides=left, refusals=refusals)

    def forget(self) -> None:
        """Accept nothing, and count generations anew."""
        self.accepted = Accepted()
