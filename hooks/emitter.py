"""What a training process holds: it takes the tensors of each loss call, reports once a step, and hands out the
controls.

Nothing here raises into training. What goes wrong is counted and logged once a kind. Data that cannot be taken is left
out alone, however often it comes. Where reporting itself fails in three steps in a row, the emitter stops: it keeps the
controls that are in effect and sends nothing more. The switches of `trimtab.hooks.switches` are read at every step;
while one is set the run has its own controls and nothing is measured or sent. Once none is, only what the agent says
from then on counts.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.accumulate import Accumulator
from trimtab.hooks.controls import Capabilities, ClipBounds, Controls, ControlValue
from trimtab.hooks.duty import MAX_FAILING_STEPS, Duty
from trimtab.hooks.facts import unmeasured
from trimtab.hooks.fence import Accepted, fenced
from trimtab.hooks.guard import Guard
from trimtab.hooks.outbox import Outbox
from trimtab.hooks.overlay import Overlay
from trimtab.hooks.pause import Patience, Pause, wait
from trimtab.hooks.records import RecordError, StepSummary, TokenBatch, check_count, check_job, check_rank
from trimtab.hooks.switches import switched_off
from trimtab.hooks.transport.base import Transport

CLOSE_SECONDS = 2.0

MakeSummary = Callable[[], StepSummary | None]
"""Without what was measured; None, and the step is lost, where no such step can be."""


class Emitter:
    """One process's end of the loop. Made by `trimtab.attach`.

    >>> from trimtab.hooks.transport.memory import MemoryTransport
    >>> with Emitter(MemoryTransport(), job="run", attempt=1) as emitter:
    ...     emitter.end_step(step=0, scalars={"loss": 0.5}).clip_low
    0.2
    """

    def __init__(
        self,
        transport: Transport,
        *,
        job: str,
        attempt: int,
        controls: Controls | None = None,
        capabilities: Capabilities | None = None,
        rank: int = 0,
        patience: Patience | None = None,
    ) -> None:
        """Check the configuration.

        Raises:
            RecordError: `job` cannot name a job, or `attempt` or `rank` is no such number.
        """
        check_job(job)
        check_count("attempt", attempt)
        check_rank("rank", rank)
        self.job, self.attempt, self.rank = job, attempt, rank
        self.transport = transport
        self.capabilities = capabilities or Capabilities(controls={})
        self._patience = patience or Patience()
        self._guard = Guard(job)
        self._overlay = Overlay(controls or Controls())
        self._accumulator = Accumulator()
        self._outbox = Outbox(transport)
        self._duty = Duty()
        self._switch(self._switched_off())
        atexit.register(self.close)

    @property
    def controls(self) -> Controls:
        """The controls in effect now."""
        return self._overlay.controls

    @property
    def last_summary(self) -> StepSummary | None:
        """The newest summary; on a device, of the step before the last."""
        return self._outbox.last.whole() if self._outbox.last else None

    @property
    def failures(self) -> int:
        """Errors swallowed so far."""
        return self._guard.failures

    @property
    def dropped(self) -> int:
        """Summaries lost so far: here, because a step could not be reported, or in the transport."""
        return self._outbox.lost + self.transport.dropped

    @property
    def stopped(self) -> bool:
        """Nothing is measured or sent any more, for good."""
        return self._duty.stopped

    @property
    def generation(self) -> int:
        """Generation of the overrides in effect; 0 before the first command."""
        return self._overlay.accepted.generation

    @property
    def overrides(self) -> dict[str, ControlValue]:
        """The overrides in effect, for a checkpoint."""
        return dict(self._overlay.accepted.overrides)

    def resume(self, *, base: Controls, overrides: Mapping[str, ControlValue], generation: int) -> None:
        """Go on with what a checkpoint recorded, so that a restart is no gap in a remedy; switched off, with `base`.

        Raises:
            ControlError: an override that `Controls` does not take.
        """
        self._overlay.resume(base, overrides, generation)
        with self._guard.swallowing("resume"):
            self._switch(self._agreed_off())
        self._overlay.lay(base)

    def refuse(self, name: str, reason: str) -> None:
        """Drop the override of control `name`, which cannot be carried out after all, and report why."""
        with self._guard.swallowing("refuse"):
            self._overlay.refuse(name, reason)
            self._overlay.lay()

    def stop(self, reason: str) -> None:
        """Measure and send nothing any more, for good. With a collective it is told to all ranks in the next step's
        sum, and they stop where they hear it, at the same step."""
        with self._guard.swallowing("stop"):
            self._stop(f"for good: {reason}")

    def begin_attempt(self, attempt: int, base: Controls) -> None:
        """Go on as a new attempt, since the steps that follow have numbers that were there before (a restore).

        Overrides and generation stay: going back to a checkpoint is no reason to take a remedy back.

        Args:
            attempt: its number.
            base: the run's own controls at the step that it goes on from.

        Raises:
            RecordError: `attempt` is not above the present one.
        """
        if attempt <= self.attempt:
            raise RecordError(f"attempt: {attempt} is not above {self.attempt}, the present one")
        self.attempt = attempt  # first: what is still on its way was told in the attempt before
        with self._guard.swallowing("begin_attempt"):
            if not self._duty.inert:
                self._deliver(keep=0)
        with self._guard.swallowing("begin_attempt"):
            self._overlay.lay(base)

    def observe(self, **tensors: Any) -> None:
        """Take the tensors of one loss call, the fields of `TokenBatch`; empty micro-batches count too."""
        with self._guard.swallowing("observe"):
            if not self._duty.inert:
                self._accumulator.add(TokenBatch(**tensors), self.controls.ratio_reference)

    def end_step(
        self,
        *,
        step: int,
        scalars: Mapping[str, float | None] | None = None,
        policy_version: int | None = None,
        staleness: float | None = None,
        pass_index: int = 0,
        clip_bounds: ClipBounds | None = None,
        base: Controls | None = None,
    ) -> Controls:
        """Report the step that has just ended and return the controls for the next one.

        Args:
            step: the trainer's own step number, from 0.
            scalars: anything measured once a step, by name (see `StepSummary.scalars`); None is not observed.
            policy_version: version of the weights that the step trained.
            staleness: mean age of the sampled tokens, in weight versions.
            pass_index: pass over the same rollouts, from 0, where each of several updates on them is a step.
            clip_bounds: bounds that the loss clipped by, where they were not the nominal ones.
            base: the run's own controls from now on, where its schedule has changed them.
        """
        facts = {"scalars": scalars, "policy_version": policy_version, "staleness": staleness, "pass_index": pass_index}
        summary = partial(self._summary, step, facts, clip_bounds)
        with self._guard.swallowing("end_step", breaks=True):
            self._end(summary)
        with self._guard.swallowing("end_step(base=...)"):
            self._overlay.lay(base)
        if self._duty.count(broke=self._guard.take_broke()):
            self._give_up()
        return self.controls

    def wait_while_paused(self) -> Controls:
        """Wait for as long as the control `paused` is on, and return the controls for the next step.

        For the end of a step, behind what has to be done before a wait, such as a checkpoint; a trainer that calls it
        there declares the control LIVE. It asks the agent every second, and goes on where the agent, a kill switch or
        the `Patience` says so. Only an override pauses.
        """
        if self._pausing():
            with self._guard.swallowing("wait_while_paused"):
                self._deliver(keep=0)
            pause = Pause(self.transport, self._outbox.last, self._patience)
            wait(self._guard, self._overlay, pausing=self._pausing, ask=partial(self._ask, pause))
        return self.controls

    def flush(self, seconds: float = CLOSE_SECONDS) -> None:
        """Deliver what is pending, for at most `seconds`, and stay open: nothing else changes, on other ranks neither.

        For a process that may end now; it may be called in another thread, while this one waits.
        """
        until = time.monotonic() + seconds
        with self._guard.swallowing("flush"):
            if not self._duty.inert:
                for summary, vector in self._outbox.ahead(until):
                    self._send(summary, vector)
                self.transport.flush(max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """Deliver what is pending, for at most two seconds, and stop. Safe to call twice."""
        with self._guard.swallowing("close"):
            if not self._duty.inert:
                self._deliver(keep=0)
        with self._guard.swallowing("close"):
            if not self._duty.forked:
                self.transport.close(CLOSE_SECONDS)
        self._duty.stopped = True
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self, summary: MakeSummary) -> None:
        """Take what was measured, send what is due, and hear what is wanted."""
        self._switch(self._switched_off())
        if self._duty.inert:
            self._outbox.lost += self._duty.stopped and not self._duty.off
            return
        drained, made = self._accumulator.drain(), summary()
        if made is not None:
            self._outbox.add(drained, made)
        self._deliver(keep=1)
        self._overlay.accept(self._offered())

    def _pausing(self) -> bool:
        return not self._duty.inert and self._overlay.accepted.overrides.get("paused") is True

    def _ask(self, pause: Pause) -> str:
        """Ask the agent once more and hear what it wants; why the pause is over whatever that is, or nothing."""
        over = pause.over()
        self._switch(self._switched_off())
        if not self._duty.off:
            self._overlay.accept(self._offered())
        return over

    def _deliver(self, *, keep: int) -> None:
        """Send what has arrived, and all but the newest `keep` steps in any case."""
        for summary, vector in self._outbox.arrived(keep=keep, early=True):
            if summary is not None:
                self._send(summary, vector)

    def _send(self, summary: StepSummary, vector: NDArray[np.float64]) -> None:
        self._outbox.send(summary, vector)

    def _offered(self) -> Accepted | None:
        """What the agent's newest command changes, as far as it is let through."""
        return fenced(
            self.transport.command(),
            job=self.job,
            attempt=self.attempt,
            current=self._overlay.accepted,
            capabilities=self.capabilities,
        )

    def _summary(self, step: int, facts: Mapping[str, Any], clip_bounds: ClipBounds | None) -> StepSummary | None:
        summary = unmeasured(
            self._guard,
            self._overlay,
            facts,
            job=self.job,
            attempt=self.attempt,
            step=step,
            rank=self.rank,
            capabilities=self.capabilities,
            clip_bounds=clip_bounds,
            dropped_total=self.dropped,
        )
        self._outbox.lost += summary is None
        return summary

    def _switched_off(self) -> bool:
        """Whether a person says so. What an agent said before the switch was reset may be long lifted."""
        off = switched_off()
        if off or self._duty.off:
            self.transport.forget_command()
        return off

    def _agreed_off(self) -> bool:
        return self._switched_off()

    def _switch(self, off: bool) -> None:
        if off:
            self._overlay.forget()
            if not self._duty.off:
                self._guard.say(
                    "switched off by a person: the run has its own controls, and nothing is measured or sent"
                )
                self._accumulator = Accumulator()
        self._duty.off = off

    def _give_up(self) -> None:
        self._stop(f"in {MAX_FAILING_STEPS} steps in a row")

    def _stop(self, where: str) -> None:
        if not self._duty.stopped:
            self._duty.stopped = True
            self._outbox.discard()
            self._guard.say(
                f"stopped: reporting failed {where}; the controls stay as they are, and steps are only counted as "
                "dropped"
            )
