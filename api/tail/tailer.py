"""The reader of one log: look, put what was read in safe hands, deliver, look again.

In safe hands is: in the cursor's outbox, on disk, before it is sent; and out of it once the agent has it. While the
agent is away nothing more is read: the log itself keeps it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from trimtab.api.tail.assembly import Assembly, LoggedStep
from trimtab.api.tail.cursor import Cursor, CursorFile
from trimtab.api.tail.frameworks import FRAMEWORKS, GENERIC, Framework, detected
from trimtab.api.tail.source import Piece, Row, Skipped, Source, TailError
from trimtab.api.tail.summaries import mapped, summary_of
from trimtab.api.tail.vanishing import Presence
from trimtab.hooks.transport.connection import Connection
from trimtab.hooks.wire import encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What came of one look."""

    delivered: int
    """Steps that the agent has taken."""
    more: bool
    """There is more to be read at once."""
    away: str = ""
    """Why the rest could not be delivered; empty where it could."""
    refusal: str = ""
    """Why the agent refused a step for good; empty where it refused none."""


class Tailer:
    """Follows a log for a job.

    Raises:
        TailError: the cursor is of another log or job, or cannot be read.
    """

    def __init__(
        self,
        source: Source,
        *,
        path: str,
        job: str,
        store: CursorFile,
        agent: Connection,
        framework: str = "",
        from_start: bool = True,
        quiet_s: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source, self._store, self._agent, self._clock = source, store, agent, clock
        self._quiet_s = source.quiet_s if quiet_s is None else quiet_s
        self._forced = framework
        self.lag_s: float | None = None
        """Of the newest step that was read; None where the log does not say when."""
        cursor = store.load()
        if cursor is None:
            place = {} if from_start else dict(source.end())
            attempt = int(clock())
            cursor = Cursor(job=job, source=source.kind, path=path, assembly=Assembly(attempt=attempt), place=place)
            store.store(cursor)
        known = (cursor.job, cursor.source, cursor.path)
        if known != (job, source.kind, path):
            raise TailError(
                f"--cursor: {store.path} is of job {cursor.job!r} and {cursor.source} {cursor.path}, and not of this "
                "log: give another place, or the same log"
            )
        self.cursor = cursor

    @property
    def framework(self) -> str:
        """Whose keys they are taken for."""
        return self._forced or self.cursor.framework or GENERIC.name

    def look(self, *, last: bool = False) -> Look:
        """Deliver what is left, read on, and deliver that; `last` closes the open step.

        Raises:
            TailError: the log or the cursor cannot be read or written; nothing is lost, and it may be tried again.
        """
        left = self._deliver()
        if left.away:
            return left
        piece = self._source.read(self.cursor.place)
        changed = self._taken(piece, last=last and not piece.more)
        if changed is not self.cursor:
            self._keep(changed)
        done = self._deliver()
        refusal = left.refusal or done.refusal
        return replace(done, delivered=left.delivered + done.delivered, more=piece.more, refusal=refusal)

    def _taken(self, piece: Piece, *, last: bool) -> Cursor:
        """The cursor with what was read in it."""
        now, cursor = self._clock(), self.cursor
        if piece.rows and not (self._forced or cursor.framework):
            keys = {key for row in piece.rows for key in row.values} | set(cursor.assembly.latest)
            found = detected(keys)
            cursor = cursor if found is None else replace(cursor, framework=found.name)
        framework = FRAMEWORKS[self._forced or cursor.framework or GENERIC.name]
        assembly, steps, untakable = self._assembled(cursor.assembly, piece.rows, framework, now)
        is_quiet = not piece.more and assembly.open is not None and now - assembly.read_at >= self._quiet_s
        if last or is_quiet:
            assembly, more = assembly.ended(whole=is_quiet)
            steps = [*steps, *more]
        cursor = _counted(cursor, piece.skipped, untakable)
        for step in steps:
            try:
                cursor = self._with(cursor, step, now)
            except Exception:  # whatever it is, the steps behind it are as good as any
                cursor = _counted(cursor, Skipped(), 1)
        place = dict(piece.place)
        if place == cursor.place and assembly is cursor.assembly and cursor is self.cursor:
            return cursor
        return replace(cursor, place=place, assembly=assembly)

    @staticmethod
    def _assembled(
        assembly: Assembly, rows: Iterable[Row], framework: Framework, now: float
    ) -> tuple[Assembly, list[LoggedStep], int]:
        """After these rows, the steps that are complete then, and how many rows could not be taken."""
        steps: list[LoggedStep] = []
        untakable = 0
        for row in rows:
            try:
                assembly, more = assembly.taking((row,), framework.axis, now)
                steps += more
            except Exception:  # whatever it is, the rows behind it are as good as any
                untakable += 1
        return assembly, steps, untakable

    def _with(self, cursor: Cursor, step: LoggedStep, now: float) -> Cursor:
        framework = FRAMEWORKS[self._forced or cursor.framework or GENERIC.name]
        found = mapped(step.values, framework)
        presence: Presence = cursor.presence
        vanished: tuple[str, ...] = ()
        if step.whole:
            presence = presence.seen(step.attempt, found.core)
            vanished = presence.gone
        summary = summary_of(
            step,
            found,
            job=cursor.job,
            source=cursor.source,
            framework=framework.name,
            vanished=vanished,
            now=now,
        )
        self.lag_s = None if summary.log is None else summary.log.lag_seconds
        counts = replace(
            cursor.counts,
            impossible=cursor.counts.impossible + found.impossible,
            too_many=cursor.counts.too_many + found.too_many,
        )
        outbox = (*cursor.outbox, encode(summary).decode())
        return replace(cursor, presence=presence, outbox=outbox, counts=counts, steps=cursor.steps + 1)

    def _deliver(self) -> Look:
        """Send the outbox, the oldest first."""
        outbox, sent, refused = self.cursor.outbox, 0, 0
        away = refusal = ""
        for payload in outbox:
            answer = self._agent.post(payload.encode())
            if not answer.delivered and not answer.rejected:
                away = answer.barred or answer.stumbled or f"nothing answers at {self._agent.url}"
                break
            refused += bool(answer.rejected)
            refusal = refusal or answer.rejected
            sent += 1
        if sent:
            counts = replace(self.cursor.counts, refused=self.cursor.counts.refused + refused)
            self._keep(replace(self.cursor, outbox=outbox[sent:], counts=counts))
        return Look(delivered=sent - refused, more=False, away=away, refusal=refusal)

    def _keep(self, cursor: Cursor) -> None:
        self._store.store(cursor)
        self.cursor = cursor


def _counted(cursor: Cursor, skipped: Skipped, untakable: int) -> Cursor:
    """With what was passed over, and what could not be taken, which is damaged too."""
    if not (skipped.damaged or skipped.not_numbers or skipped.cut_off or untakable):
        return cursor
    counts = cursor.counts
    counts = replace(
        counts,
        damaged=counts.damaged + skipped.damaged + untakable,
        not_numbers=counts.not_numbers + skipped.not_numbers,
        cut_off=counts.cut_off + skipped.cut_off,
    )
    return replace(cursor, counts=counts)
