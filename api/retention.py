"""Beside the requests: signals are rolled up, and what summaries said is let go once it is older than is kept.

A stretch of a ledger is let go in one short transaction: it is folded once more from the base before it, the state
behind it becomes the base, and the sums and sketches of its summaries are added to the roll-ups. What was let go cannot
be replayed under other settings, so nothing is unless somebody asks for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy.exc import SQLAlchemyError

from trimtab.agent.essentials import Essentials
from trimtab.agent.replay import replay
from trimtab.api.background import rest
from trimtab.api.restore import UnreadableJobError, beginning, config_of, record_of
from trimtab.api.service import Service
from trimtab.hooks.records import StepSummary
from trimtab.storage.codec import ESSENTIALS, RUN_STATE
from trimtab.storage.history import History, Ledger
from trimtab.storage.rollups import LEVELS, Stretch, first_of
from trimtab.storage.signal_rollups import Key
from trimtab.storage.values import Base

PERIOD_S = 60.0
"""Seconds from one pass to the next."""
DAY_S = 86_400.0
CLOCK_STEP_S = 3600.0
"""Seconds that the clock may jump before ages mean nothing."""
_log = logging.getLogger("trimtab.api")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """What of each job is kept whole. Roll-ups of 10 steps are kept ten times as long, those of 100 for good.

    Where both are given, a summary goes once both let it.
    """

    summaries: int | None = None
    """So many of the newest ledger rows; None for all."""
    days: float | None = None
    """Whatever came in so many days; None for all. Where nothing came from any job for longer than a day, they end a
    day after the newest row: the clock may have been ahead when the service started, and nothing else would tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Ledger rows of a job that are handled together."""

    worth_rolling_up: int = 200
    rolled_up_at_once: int = 500
    let_go_at_once: int = 200
    least_kept: int = 1000
    """The newest, which stay whole whatever is asked for: an agent may have to learn from them again, and no process
    that is up to date may miss one."""


class Retention:
    """The worker. Replicas may each have one: what one has done, the other finds done."""

    def __init__(
        self,
        service: Service,
        keep: Keep,
        *,
        pace: Pace | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._pace = pace or Pace()
        self._history = History(service.database)
        self._keep = keep
        self._monotonic = monotonic
        self._offset = service.clock() - monotonic()
        self._told: set[str] = set()
        self._heard_at: float | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Work through every job, again and again; not at the start, when everybody else has much to do."""
        while True:
            await rest(stop, PERIOD_S)
            if stop.is_set():
                return
            try:
                await asyncio.to_thread(self.pass_over, stop.is_set)
            except SQLAlchemyError as error:
                _log.warning("roll-ups wait for the database: %s", error)

    def pass_over(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Bring every job up to date, until stopped."""
        if self._keep.days is not None:
            self._heard_at = self._history.heard_at(self._service.clock())
        for ledger in self._history.ledgers():
            while ledger.rows - ledger.rolled >= self._pace.worth_rolling_up and not stopped():
                ledger = self._history.roll_up(ledger, self._pace.rolled_up_at_once)
            try:
                self._let_go(ledger, stopped)
            except UnreadableJobError as error:
                self._tell(str(error))

    def _let_go(self, ledger: Ledger, stopped: Callable[[], bool]) -> None:
        last = self._last(ledger, ledger.base, 1)
        begun = ledger.base
        while last - ledger.base >= self._pace.let_go_at_once and not stopped():
            after = self._next_base(ledger)
            if after is None:
                return  # another replica is at it
            ledger = after
        if ledger.base > begun and not stopped():
            self._history.coarsen(ledger, self._last(ledger, self._history.finest(ledger) - 1, LEVELS[0]))

    def _last(self, ledger: Ledger, after: int, times: int) -> int:
        """The last ledger row that may go, of those behind `after`, when what is kept is kept so many times as long."""
        if self._keep == Keep():
            return 0
        rules = [ledger.rows - times * self._pace.least_kept]
        if self._keep.summaries is not None:
            rules.append(ledger.rows - times * self._keep.summaries)
        if self._keep.days is not None:
            now = self._service.clock()
            if abs(now - self._monotonic() - self._offset) > CLOCK_STEP_S:
                self._tell("the clock has jumped: nothing is let go for its age until the service is started again")
                return 0
            if self._heard_at is None:
                return 0
            today = min(now, self._heard_at + DAY_S)
            rules.append(self._history.older_than(ledger, after, today - times * self._keep.days * DAY_S, now))
        return min(rules)

    def _next_base(self, ledger: Ledger) -> Ledger | None:
        """Let the next stretch of a ledger go; how things stand after that, or None where they stood otherwise."""
        seq = ledger.base + self._pace.let_go_at_once
        settings, base, entries = self._history.next_entries(ledger, seq)
        if (base.seq if base else 0) != ledger.base:
            return None
        config = config_of(ledger.job, settings)
        state = beginning(ledger.job, config, base)
        records = [record_of(ledger.job, entry) for entry in entries]
        for outcome in replay(config, state, records):
            state = outcome.state
        after = Base(
            seq=seq,
            schema=RUN_STATE.schema,
            state=RUN_STATE.encode(state),
            essentials=ESSENTIALS.encode(Essentials.of(state)),
        )
        summaries = [record for record in records if isinstance(record, StepSummary)]
        return replace(ledger, base=seq) if self._history.thin(ledger, after, stretches_of(summaries)) else None

    def _tell(self, message: str) -> None:
        """Once, not at every pass."""
        if message not in self._told:
            self._told.add(message)
            _log.warning("%s", message)


def stretches_of(summaries: Sequence[StepSummary]) -> dict[Key, Stretch]:
    """The sums and sketches of the summaries, added up over stretches of every level."""
    found: dict[Key, Stretch] = {}
    for summary in summaries:
        one = Stretch.of(summary)
        for level in LEVELS:
            key = summary.attempt, level, first_of(summary.step, level)
            found[key] = found[key].merged(one) if key in found else one
    return found
