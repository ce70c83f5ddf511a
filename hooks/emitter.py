"""What a training process holds: it takes the tensors of each loss call, reports once a step, and hands out the
controls.

Nothing here raises into training. What goes wrong inside is counted, logged once a kind, and after three failing steps
in a row the emitter stops: it keeps the controls that are in effect and sends nothing more. Two switches for a person
need no agent: `TRIMTAB_DISABLE=1` in the environment, or the existence of the file that `TRIMTAB_KILL_FILE` names. Both
are read at every step, and while one is set the run has its own controls and nothing is measured or sent.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from trimtab.hooks.accumulate import Accumulator, Drained
from trimtab.hooks.controls import Capabilities, ClipBounds, Controls, ControlValue
from trimtab.hooks.fence import Accepted, fenced
from trimtab.hooks.layout import Packed, Report
from trimtab.hooks.records import RecordError, StepSummary, TokenBatch, check_job
from trimtab.hooks.transport.background import Background
from trimtab.hooks.transport.base import Transport

MAX_FAILING_STEPS = 3
CLOSE_SECONDS = 2.0

_log = logging.getLogger("trimtab")


@dataclass(frozen=True, slots=True)
class _Pending:
    """A step whose vector may still be on its way from the device."""

    drained: Drained
    fields: dict[str, Any]
    """The other fields of its summary."""


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
    ) -> None:
        """Check the configuration.

        Raises:
            RecordError: `job` cannot name a job, or `attempt` or `rank` is negative.
        """
        check_job(job)
        for name, value in (("attempt", attempt), ("rank", rank)):
            if value < 0:
                raise RecordError(f"{name}: {value} is negative")
        self.job, self.attempt, self.rank = job, attempt, rank
        self.transport = transport
        self.capabilities = capabilities or Capabilities(controls={})
        self.failures = 0
        """Errors swallowed so far."""
        self._last: Report | None = None
        self._base = self._controls = controls or Controls()
        self._accepted = Accepted()
        self._accumulator = Accumulator()
        self._pending: deque[_Pending] = deque()
        self._failing_steps = 0
        self._step_failed = False
        self._stopped = False
        self._off = _switched_off()
        self._said: set[str] = set()
        self._pid = os.getpid()
        atexit.register(self.close)

    @property
    def controls(self) -> Controls:
        """The controls in effect now."""
        return self._controls

    @property
    def last_summary(self) -> StepSummary | None:
        """The newest summary that was sent; on a device, of the step before the last."""
        return self._last.whole() if self._last else None

    @property
    def generation(self) -> int:
        """Generation of the overrides in effect; 0 before the first command."""
        return self._accepted.generation

    @property
    def overrides(self) -> dict[str, ControlValue]:
        """The overrides in effect, for a checkpoint."""
        return dict(self._accepted.overrides)

    def resume(self, *, base: Controls, overrides: Mapping[str, ControlValue], generation: int) -> None:
        """Go on with what a checkpoint recorded, so that a restart is no gap in a remedy.

        Raises:
            ControlError: an override that `Controls` does not take.
        """
        self._base = base
        self._controls = base.overlaid(overrides)
        self._accepted = Accepted(generation=generation, overrides=dict(overrides))

    def observe(self, **tensors: Any) -> None:
        """Take the tensors of one loss call, the fields of `TokenBatch`; empty micro-batches count too."""
        with self._guarded("observe"):
            if not self._inert():
                self._accumulator.add(TokenBatch(**tensors), self._controls.ratio_reference)

    def end_step(
        self,
        *,
        step: int,
        scalars: Mapping[str, float | None] | None = None,
        policy_version: int | None = None,
        staleness: float | None = None,
        clip_bounds: ClipBounds | None = None,
        base: Controls | None = None,
    ) -> Controls:
        """Report the step that has just ended and return the controls for the next one.

        Args:
            step: the trainer's own step number, from 0.
            scalars: anything measured once a step, by name (see `StepSummary.scalars`); None is not observed.
            policy_version: version of the weights that the step trained.
            staleness: mean age of the sampled tokens, in weight versions.
            clip_bounds: bounds that the loss clipped by, where they were not the nominal ones.
            base: the run's own controls from now on, where its schedule has changed them.
        """
        with self._guarded("end_step"):
            self._read_switches()
            if not self._inert():
                self._report(
                    step=int(step),
                    scalars=self._numbers(scalars or {}),
                    policy_version=None if policy_version is None else int(policy_version),
                    staleness=None if staleness is None else float(staleness),
                    clip_bounds=clip_bounds,
                )
                self._obey()
        with self._guarded("end_step"):
            self._base = base or self._base
            self._controls = self._base.overlaid(self._accepted.overrides)
        self._count_failing_step()
        return self._controls

    def close(self) -> None:
        """Deliver what is pending, for at most two seconds, and stop. Safe to call twice."""
        with self._guarded("close"):
            if not self._inert():
                self._send_pending(keep=0)
            if not self._forked():
                self.transport.close(CLOSE_SECONDS)
        self._stopped = True
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _report(self, **fields: Any) -> None:
        fields |= {
            "applied": self._controls,
            "generation": self._accepted.generation,
            "overrides": self._accepted.overrides,
            "refusals": self._accepted.refusals,
        }
        self._pending.append(_Pending(self._accumulator.drain(), fields))
        self._send_pending(keep=1)

    def _send_pending(self, *, keep: int) -> None:
        """Send the steps whose vectors are here, and wait for all but the newest `keep`, which are long done."""
        while self._pending and (len(self._pending) > keep or self._pending[0].drained.ready()):
            pending = self._pending.popleft()
            summary = StepSummary(
                job=self.job,
                attempt=self.attempt,
                rank=self.rank,
                capabilities=self.capabilities,
                dropped_total=self.transport.dropped,
                **pending.fields,
            )
            self._last = Report(summary, Packed.of(pending.drained.read()))
            if isinstance(self.transport, Background):
                self.transport.send_report(self._last)
            else:
                self.transport.send(self._last.whole())

    def _obey(self) -> None:
        accepted = fenced(
            self.transport.command(),
            job=self.job,
            attempt=self.attempt,
            current=self._accepted,
            capabilities=self.capabilities,
        )
        if accepted is not None:
            self._accepted = accepted

    def _numbers(self, scalars: Mapping[str, Any]) -> dict[str, float]:
        """The scalars that are numbers. One that is not is left out alone, counted and logged."""
        numbers = {}
        for name, value in scalars.items():
            if isinstance(value, float | int):
                numbers[name] = float(value)
            elif value is not None:
                with self._guarded(f"scalars.{name}"):
                    numbers[name] = float(value)
        return numbers

    def _read_switches(self) -> None:
        off = _switched_off()
        if off and not self._off:
            self._say("switched off by a person: the run has its own controls, and nothing is measured or sent")
            self._accepted = Accepted()
            self._accumulator = Accumulator()
        self._off = off

    def _inert(self) -> bool:
        return self._stopped or self._off or self._forked()

    def _forked(self) -> bool:
        """True in a child process: its copy of the transport is the parent's, so it must keep still."""
        return os.getpid() != self._pid

    @contextmanager
    def _guarded(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.failures += 1
            self._step_failed = True
            self._say(
                f"{doing}: {type(error).__name__}: {error} (training goes on; more of this kind will only be counted)",
                kind=f"{doing} {type(error).__name__}",
            )

    def _count_failing_step(self) -> None:
        self._failing_steps = self._failing_steps + 1 if self._step_failed else 0
        self._step_failed = False
        if self._failing_steps == MAX_FAILING_STEPS and not self._stopped:
            self._stopped = True
            self._say(f"stopped after {MAX_FAILING_STEPS} failing steps in a row; the controls stay as they are")

    def _say(self, message: str, kind: str | None = None) -> None:
        if (kind or message) not in self._said:
            self._said.add(kind or message)
            _log.warning("%s (job %s): %s", "trimtab", self.job, message)


def _switched_off() -> bool:
    if os.environ.get("TRIMTAB_DISABLE", "") not in ("", "0"):
        return True
    kill_file = os.environ.get("TRIMTAB_KILL_FILE")
    return bool(kill_file) and os.path.exists(str(kill_file))
