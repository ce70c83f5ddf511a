"""To an agent over HTTP: one POST a summary; the reply carries the newest command.

    2xx                      delivered
    429, 5xx, no connection  tried again after a pause (doubling, jittered, Retry-After honoured); meanwhile summaries
                             go to the spool, and are replayed oldest first once the agent is back
    401, 403                 the same, until somebody has seen to the token: nothing is lost for want of one
    500 five times running   taken for a fault that this summary causes, and treated like the next
    anything else            the agent will never take this summary: kept in the spool's folder `rejected`, counted

Delivery is at least once and in order; the agent ignores what it has already seen.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from pathlib import Path

from trimtab.hooks.layout import Report
from trimtab.hooks.transport.background import CAPACITY, Background
from trimtab.hooks.transport.backoff import Backoff
from trimtab.hooks.transport.connection import Answer, Connection
from trimtab.hooks.transport.spool import Spool
from trimtab.hooks.wire import encode

MAX_STUMBLES = 5
MAX_UNREAD = 5
"""Tries to read the spool for which newer summaries wait."""

_log = logging.getLogger("trimtab")


class HttpTransport(Background):
    """Delivers to the agent at `url` from a thread of its own.

    Raises:
        ValueError: the URL has no host.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        spool: Path | None = None,
        backoff: Backoff | None = None,
        timeout: float = 10.0,
        capacity: int = CAPACITY,
    ) -> None:
        super().__init__(capacity)
        self._agent = Connection(url, token, timeout)
        self._backoff = backoff or Backoff()
        self._spool = Spool(spool) if spool else None
        self._rejects = Spool(spool / "rejected") if spool else None
        self._disk = threading.Lock()
        """Guards the spools. A disk may hang, so it is never waited for while `_changed` is held."""
        self._backlog = spool is not None
        """Whether the spool may hold something. Sleeping looks at this, and so at no disk."""
        self._unread = 0
        """Times in a row that the spool could not be read."""
        self._look_at = 0.0
        """Monotonic time before which it is not tried again."""
        self._disk_refuses = False
        """The disk did not take a summary; it is asked again after the next try to deliver."""
        self.rejected = 0
        """Summaries that the agent refused for good."""
        self._question: Report | None = None
        """What somebody waits for an answer to; tried once nothing else is due."""
        self._answers = 0
        """Times that the agent took a summary."""
        self._failures = 0
        self._stumbles = 0
        """Times in a row that the agent failed over the summary that is due."""
        self._not_before = 0.0

    @property
    def dropped(self) -> int:
        """Summaries lost so far."""
        return self._lost + sum(spool.dropped for spool in (self._spool, self._rejects) if spool)

    def ask(self, report: Report, timeout: float) -> bool:
        """Post the summary once more behind what is queued, and wait; any answer is one, as each has the command."""
        with self._changed:
            if self._close_at is not None:
                return False
            answers, self._question = self._answers, report
            self._awake()
            self._changed.wait_for(lambda: self._answers > answers or self._close_at is not None, timeout)
            self._question = None
            return self._answers > answers

    def flush(self, timeout: float) -> None:
        """Deliver for half of `timeout`, and leave the rest to the disk; without a spool, deliver throughout. What is
        being delivered at that moment may come twice."""
        share = timeout if self._spool is None else timeout / 2
        super().flush(share)
        if self._spool is not None and self._disk.acquire(timeout=timeout - share):
            try:
                self._spool_queue()
                self._spool.sync()
            finally:
                self._disk.release()

    def _finish(self, timeout: float) -> None:
        """Deliver for half of `timeout`, and leave the rest to the disk; without a spool, deliver throughout."""
        share = timeout if self._spool is None else timeout / 2
        super()._finish(share)
        if self._disk.acquire(timeout=timeout - share):
            try:
                self._spool_queue()
                if self._spool is not None and (
                    self._spool.peek() is not None or (self._spool.claimed and self._spool.unread)
                ):
                    folder = self._spool.directory
                    _log.warning(
                        "trimtab: summaries that %s did not take are in %s; once it is there, "
                        "`trimtab sync %s --url %s` delivers them",
                        *(self._agent.url, folder, folder, self._agent.url),
                    )
                for spool in (self._spool, self._rejects):
                    if spool:
                        spool.close()
            finally:
                self._disk.release()

    def _work(self) -> None:
        while self._wait_for_work():
            if self._failures and time.monotonic() < self._not_before:
                with self._disk:
                    self._spool_queue()
            else:
                self._deliver()
        self._agent.hang_up()

    def _wait_for_work(self) -> bool:
        """Sleep until the agent may be tried, or the queue should go to disk; False once closed and done."""
        with self._changed:
            while True:
                now = time.monotonic()
                due = self._not_before if self._queue or self._question is not None else math.inf
                if self._backlog:
                    due = min(due, max(self._not_before, self._look_at))
                if self._close_at is not None:
                    return due <= now < self._close_at and not self._failures
                if due <= now:
                    return True
                if self._failures and self._queue and self._spool and not self._disk_refuses:
                    return True
                self._changed.wait(None if due == math.inf else due - now)

    def _deliver(self) -> None:
        """Try the oldest summary once, from the spool or else from the queue."""
        report, payload = None, None
        if self._backlog and self._spool is not None and time.monotonic() >= self._look_at:
            with self._disk:
                payload = self._spool.peek()
                self._backlog = payload is not None or self._spool.unread is not None
            if self._must_wait_for(self._spool):
                return
        if payload is None:
            report = self._head()
            payload = None if report is None else self._payload(report)
        if payload is not None:
            self._settle(self._agent.post(payload), payload, report)
        else:
            self._put_question()

    def _must_wait_for(self, spool: Spool) -> bool:
        """Whether what is in the spool cannot be read now, and yet should go first. Another process's never should, and
        what is not to be had in a while does not blind the run: it is tried again beside the rest."""
        if spool.unread is None:
            self._unread = 0
            return False
        self._unread += 1
        self._look_at = time.monotonic() + self._backoff.wait(self._unread)
        why = "another process has it" if isinstance(spool.unread, BlockingIOError) else spool.unread
        self._say_once(f"{spool.directory} cannot be read now: {why}; what is there is kept for later", kind="spool")
        if not spool.claimed or self._unread > MAX_UNREAD:
            return False
        self._not_before, self._disk_refuses = self._look_at, False
        return True

    def _put_question(self) -> None:
        """Once for each time that somebody asks. An agent that refuses it is no more of an answer than none."""
        with self._changed:
            question, self._question = self._question, None
        if question is None:
            return
        answer = self._agent.post(encode(question.whole()))
        if answer.delivered:
            self._failures = 0
            self._heard(answer)
        elif not answer.rejected:
            self._away(answer)

    def _heard(self, answer: Answer) -> None:
        with self._changed:
            self._command = answer.command or self._command
            self._answers += 1
            self._changed.notify_all()

    def _away(self, answer: Answer) -> None:
        self._failures += 1
        self._disk_refuses = False
        if answer.barred:
            told = f"{self._agent.url} does not let this job in: {answer.barred}; summaries are kept until it does"
            self._say_once(f"{told}. See to its token", kind="barred")
        elif self._failures == 1:
            where = f"in {self._spool.directory}" if self._spool else "in memory, since there is no spool,"
            _log.warning("trimtab: no answer from %s; summaries wait %s until it is back", self._agent.url, where)
        self._not_before = time.monotonic() + self._backoff.wait(self._failures, answer.asked)

    def _settle(self, answer: Answer, payload: bytes, report: Report | None) -> None:
        if answer.delivered:
            self._heard(answer)
        self._stumbles = self._stumbles + 1 if answer.stumbled else 0
        if self._stumbles == MAX_STUMBLES:
            self._stumbles = 0
            answer = Answer(rejected=f"{answer.stumbled} ({MAX_STUMBLES} times)")
        if not answer.delivered and not answer.rejected:
            self._away(answer)
            return
        self._failures = 0
        kept = bool(answer.delivered)
        if answer.rejected:
            self.rejected += 1
            with self._disk:
                kept = self._rejects is not None and self._rejects.append(payload)
            if self.rejected == 1:
                _log.warning("trimtab: %s refused a summary: %s", self._agent.url, answer.rejected)
        if report is not None:
            self._done_with(report, lost=not kept)
        elif self._spool is not None:
            with self._disk:
                self._spool.pop()
            with self._changed:
                self._lost += not kept

    def _spool_queue(self) -> None:
        """Move the queue to disk, in order, while `_disk` is held; what the disk does not take stays in memory."""
        while self._spool is not None and (report := self._head()) is not None:
            payload = self._payload(report)
            if payload is not None:
                if not self._spool.append(payload):
                    self._disk_refuses = True
                    return
                self._backlog = True
                self._done_with(report)
