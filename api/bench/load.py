"""Requests to a server from a process of their own, over one persistent connection for each job, and how long the
answers take."""

from __future__ import annotations

import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

import numpy as np

TIMEOUT_S = 60.0
"""For one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request."""

    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    summaries: int = 1
    """Steps of a job that it carries."""


class Target(ABC):
    """What a server is sent. It is pickled on its way into the process that sends."""

    @abstractmethod
    def calls(self, job: int) -> Iterator[Call]:
        """The requests of one job, in order and without an end."""

    def refusal(self, answer: bytes) -> str:  # noqa: ARG002 - what most servers say is said by the status
        """Why an answer with status 200 is none; empty where it is one."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much is sent, and for how long."""

    urls: Sequence[str]
    """Servers; job i reports to the i-th, and so on in turn."""
    jobs: int
    seconds: float
    pace: float | None = None
    """Requests a second of each job; None for one as soon as the one before is answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """What became of a load. Only what was acknowledged counts."""

    by_job: tuple[int, ...]
    """Summaries that were acknowledged, of each job."""
    seconds: float
    """From the first request to the last answer."""
    p50_ms: float
    p99_ms: float
    """Of a request, from its first byte to the last of its answer."""

    @property
    def per_second(self) -> float:
        """Summaries a second."""
        return sum(self.by_job) / self.seconds


class LoadError(RuntimeError):
    """A request that was not answered as it should be; the message says how it was."""


def drive(target: Target, load: Load) -> Driven:
    """Send a load from a process of its own. Raises `LoadError`."""
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_drive, args=(target, load, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        found = ours.recv()
    except EOFError:
        raise LoadError("the process that sends has died; its traceback is above") from None
    finally:
        process.join()
    if isinstance(found, str):
        raise LoadError(found)
    driven: Driven = found
    return driven


def _drive(target: Target, load: Load, answer: Connection) -> None:
    senders = [_Sender(target, load, job) for job in range(load.jobs)]
    start = time.perf_counter()
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    failed = next((sender.failed for sender in senders if sender.failed), None)
    if failed is not None:
        answer.send(failed)
        return
    seconds = max(sender.ended for sender in senders) - start
    times = list(itertools.chain.from_iterable(sender.times for sender in senders))
    p50, p99 = (1e3 * np.percentile(times, (50, 99))).tolist()
    by_job = tuple(sender.taken for sender in senders)
    answer.send(Driven(by_job=by_job, seconds=seconds, p50_ms=p50, p99_ms=p99))


class _Sender(threading.Thread):
    """Reports one job."""

    def __init__(self, target: Target, load: Load, job: int) -> None:
        super().__init__(daemon=True)
        self._target, self._load, self._job = target, load, job
        self.times: list[float] = []
        self.taken, self.ended, self.failed = 0, 0.0, ""

    def run(self) -> None:
        address = urlsplit(self._load.urls[self._job % len(self._load.urls)])
        connection = HTTPConnection(address.hostname or "", address.port, timeout=TIMEOUT_S)
        try:
            self._report(connection)
        except Exception as error:
            self.failed = f"job {self._job}: {type(error).__name__}: {error}"
        finally:
            connection.close()

    def _report(self, connection: HTTPConnection) -> None:
        pace, start = self._load.pace, time.perf_counter()
        if pace is not None:  # jobs do not report in step
            start += self._job / self._load.jobs / pace
        for number, call in enumerate(self._target.calls(self._job)):
            due = time.perf_counter() if pace is None else start + number / pace
            if due - start >= self._load.seconds:
                return
            time.sleep(max(due - time.perf_counter(), 0.0))
            begun = time.perf_counter()
            connection.request("POST", call.path, call.body, {"content-type": "application/json", **call.headers})
            response = connection.getresponse()
            answer = response.read()
            self.ended = time.perf_counter()
            refusal = self._target.refusal(answer) if response.status == 200 else f"status {response.status}"
            if refusal:
                raise LoadError(f"{refusal}: {_shown(answer)}")
            self.times.append(self.ended - begun)
            self.taken += call.summaries


def _shown(answer: Any) -> str:
    return str(answer[:300].decode("utf-8", "replace"))
