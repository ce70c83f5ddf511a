"""The emitter of one process of several: they measure apart, and report and are steered as one.

What the ranks measured is summed once a step, rank 0 sends the sum, and in the same sum it tells the others which
overrides it lets through, so that all of them apply the same ones at the same step. Where the sum is read a step late
(`Collective.late`), it is so on every rank. Every rank takes part in every step's sum, whatever has failed on it.
Rank 0's switches count, and where reporting fails for good on one rank, it stops on all of them at the same step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.collective import Collective
from trimtab.hooks.emitter import Emitter, MakeSummary
from trimtab.hooks.layout import SIZE
from trimtab.hooks.pause import Pause
from trimtab.hooks.records import StepSummary
from trimtab.hooks.told import BLOCK, Told
from trimtab.hooks.transport.base import Transport


class RankEmitter(Emitter):
    """One rank's end of the loop; made by `trimtab.attach` with a collective.

    Every rank calls `end_step`, `resume`, `begin_attempt`, `refuse` and `close` alike. Of what it passes to `end_step`,
    rank 0's numbers are sent; `base` counts on every rank, and is the same on all.
    """

    def __init__(self, transport: Transport, collective: Collective, **arguments: Any) -> None:
        """As `Emitter`, as the rank that `collective` gives this process.

        Raises:
            RecordError: as for `Emitter`.
        """
        self._collective = collective
        self._unmeasured = self._closed = self._leaving = False
        super().__init__(transport, rank=collective.rank, **arguments)

    def observe(self, **tensors: Any) -> None:
        """Take the tensors of one loss call; see `Emitter.observe`."""
        failures = self.failures
        super().observe(**tensors)
        self._unmeasured |= self.failures > failures

    def stop(self, reason: str) -> None:
        """Stop on all ranks; see `Emitter.stop`."""
        self._leaving = True
        self._guard.say(f"stopping on all ranks: {reason}")

    def close(self) -> None:
        """Deliver what is pending, for at most two seconds, and take part in no sum any more."""
        super().close()
        self._closed = True

    def _end(self, summary: MakeSummary) -> None:
        if self._closed or self._duty.forked:
            return
        vector, device = self._contribution()
        try:
            drained = self._collective.sum(vector, device)
        except BaseException:
            self._outbox.lost += 1
            raise
        self._outbox.add(drained, summary())
        self._deliver(keep=self._collective.late)

    def _ask(self, pause: Pause) -> str:
        """Rank 0 asks, and tells the others in a sum of its own, which none of them reads late."""
        over = "over, as rank 0 says"
        told = Told(over=self.rank == 0)
        with self._guard.swallowing("wait_while_paused"):
            if self.rank == 0:
                over, off = pause.over(), self._switched_off()
                told = Told(off=off, accepted=None if off else self._offered(), over=bool(over))
        told = Told.of(self._collective.sum(told.block()).read())
        self._switch(told.off)
        if not self._duty.off:
            self._overlay.accept(told.accepted)
        return over if told.over else ""

    def _contribution(self) -> tuple[NDArray[np.float64], Any]:
        """This rank's part of the step's sum. Whatever fails here, there is one: the other ranks wait for it."""
        vector, device = np.zeros(SIZE + BLOCK), None
        stopped = self._duty.stopped or self._duty.failed or self._leaving
        told = Told(off=self.rank == 0 and self._duty.off, failed=1, stopped=int(stopped))
        with self._guard.swallowing("end_step", breaks=True):
            if not self._duty.inert:
                vector[:SIZE], device = self._accumulator.take()
            off, failed, self._unmeasured = self._switched_off(), self._unmeasured, False
            speaks = self.rank == 0 and not (off or stopped)
            told = Told(
                attempt=self.attempt if self.rank == 0 else 0,
                off=off,
                accepted=self._offered() if speaks else None,
                failed=int(failed),
                stopped=int(stopped),
            )
        vector[SIZE:] = told.block()
        return vector, device

    def _deliver(self, *, keep: int) -> None:
        """Hear what was told in every step but the newest `keep`, and send the summaries of those steps.

        Never more of them because they are here already: that is not so on all ranks at the same time.
        """
        for summary, vector in self._outbox.arrived(keep=keep, early=False):
            told = Told.of(vector[SIZE:])
            self._switch(told.off)
            if told.stopped:
                self._stop(f"for good on {told.stopped} of {told.ranks} ranks")
            if self._duty.off or self._duty.stopped:
                self._outbox.lost += self._duty.stopped and not self._duty.off and summary is not None
                continue
            if told.attempt == self.attempt:
                self._overlay.accept(told.accepted)
            if summary is not None:
                self._send(summary, vector)

    def _send(self, summary: StepSummary, vector: NDArray[np.float64]) -> None:
        told = Told.of(vector[SIZE:])
        if not (told.off or told.stopped):  # which is heard when the step is due, as on all other ranks
            self._outbox.send(replace(summary, ranks=told.ranks, failed_ranks=told.failed), vector[:SIZE])

    def _switched_off(self) -> bool:
        return self.rank == 0 and super()._switched_off()

    def _agreed_off(self) -> bool:
        return Told.of(self._collective.sum(Told(off=self._switched_off()).block()).read()).off

    def _give_up(self) -> None:
        """Told to all ranks in the next sum, and done when it is heard."""
