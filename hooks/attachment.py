"""An emitter in somebody else's loop: what every adapter holds, and what keeps its faults out of the training.

An adapter's own code runs inside the trainer's methods and callbacks, so each entry is wrapped in `safely`. An error
there is swallowed, counted and logged once a kind. Three steps in a row with one, and the attachment takes itself off:
everything is put back as it was, said once and loudly, and the run goes on as if nothing had ever been attached. Where
several ranks report as one, all of them do so at the same step, since they would train with different controls else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from trimtab.hooks.controls import Controls
from trimtab.hooks.duty import MAX_FAILING_STEPS
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.guard import Guard
from trimtab.hooks.knobs import Panel

T = TypeVar("T")

_log = logging.getLogger("trimtab")


class Attachment:
    """One run of a trainer that is not ours.

    Args:
        emitter: made by `trimtab.attach`, with what the panel says of the run.
        panel: the trainer's knobs.
        undo: takes every wrapper and callback off the trainer again.
    """

    def __init__(self, emitter: Emitter, panel: Panel, undo: Callable[[], None]) -> None:
        self.emitter = emitter
        self.panel = panel
        self.attached = True
        """False once it was taken off, by a person or by itself."""
        self._undo = undo
        self.turning = threading.Lock()
        """Held while knobs are turned: another thread that detaches waits for it."""
        self._guard = Guard(emitter.job)
        self._strikes = 0
        self._clean = True
        self._struck = False

    @property
    def controls(self) -> Controls:
        """In effect now."""
        return self.emitter.controls

    @property
    def failures(self) -> int:
        """Errors swallowed so far, here and in the emitter."""
        return self._guard.failures + self.emitter.failures

    @contextmanager
    def safely(self, doing: str) -> Iterator[None]:
        """Swallow what goes wrong; the step counts as one with an error."""
        before = self._guard.failures
        with self._guard.swallowing(doing):
            yield
        self._clean &= self._guard.failures == before

    def tried(self, doing: str, function: Callable[[], T]) -> T | None:
        """What `function` gives; None where it fails, which is swallowed likewise."""
        results = []
        with self.safely(doing):
            results.append(function())
        return results[0] if results else None

    def end_step(self, *, step: int, scalars: Mapping[str, float | None] | None = None, **facts: Any) -> Controls:
        """Report the step and turn the knobs to what the next one must use; see `Emitter.end_step`. Once it is
        detached, nothing happens."""
        if not self.attached:
            return self.controls
        base = None
        with self.safely("own"):
            base = self.panel.own()
        with self.safely("end_step"):  # also where that failed: the other ranks wait for this one in the step's sum
            self.emitter.end_step(step=step, scalars=scalars, base=base, **facts)
            self.turn()
        if self.emitter.stopped:
            self.detach()
        self._count()
        return self.controls

    def turn(self) -> None:
        """Turn the knobs to the overrides in effect; what the trainer would not take is refused and reported as such.
        Once it is detached, which another thread may do at any moment, they stay as they are."""
        with self.turning:
            refused = self.panel.turn(self.emitter.overrides) if self.attached else ()
        for name, reason in refused:
            self.emitter.refuse(name, f"the trainer would not take it: {reason}")

    def detach(self) -> None:
        """Take everything off the trainer and put its own controls back. Safe to call twice; never raises."""
        with self.turning:
            if not self.attached:
                return
            self.attached = False
        for doing, step in (("undo", self._undo), ("release", self.panel.release), ("close", self.emitter.close)):
            with self._guard.swallowing(doing):
                step()

    def _count(self) -> None:
        self._strikes = 0 if self._clean else self._strikes + 1
        self._clean = True
        if self._strikes >= MAX_FAILING_STEPS and self.attached and not self._struck:
            self._struck = True
            _log.error(
                "trimtab (job %s): detached: its adapter failed in %d steps in a row; the run has its own controls and "
                "goes on unwatched",
                self.emitter.job,
                self._strikes,
            )
            self.emitter.stop("its adapter failed")
            if self.emitter.stopped:
                self.detach()
