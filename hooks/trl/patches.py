"""Methods wrapped on one instance, so that other trainers in the process and the class itself stay as they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from trimtab.hooks.worker import unwrap

Wrapper = Callable[..., Any]
"""(the method as it was, its arguments...) -> what the method returns."""


class Patches:
    """What was put on an object, to be taken off again.

    >>> class Trainer:
    ...     def loss(self, x): return x
    >>> trainer, patches = Trainer(), Patches()
    >>> patches.wrap(trainer, "loss", lambda loss, x: 2 * loss(x))
    >>> trainer.loss(3), patches.undo(), trainer.loss(3), vars(trainer)
    (6, None, 3, {})
    """

    def __init__(self) -> None:
        self._put: list[tuple[Any, str, Any, Any]] = []
        self._also: list[Callable[[], None]] = []

    def on_undo(self, step: Callable[[], None]) -> None:
        """Have `step` done too when everything is taken off."""
        self._also.append(step)

    def wrap(self, owner: Any, name: str, wrapper: Wrapper) -> None:
        """Have `wrapper` called in the place of `owner.name`, with the method as it was before its arguments."""
        before, own = getattr(owner, name), vars(owner).get(name)

        @functools.wraps(before)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return wrapper(before, *args, **kwargs)

        setattr(owner, name, wrapped)
        self._put.append((owner, name, wrapped, own))

    def undo(self) -> None:
        """Take off what is still there; what somebody else has wrapped since stays."""
        while self._put:
            unwrap(*self._put.pop())
        while self._also:
            self._also.pop()()
