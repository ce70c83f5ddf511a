"""No reply, no hang and no disk ends the transport's thread or holds a training step up."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.hooks.emitter import Emitter
from trimtab.hooks.layout import Report
from trimtab.hooks.records import StepSummary
from trimtab.hooks.transport.backoff import Backoff
from trimtab.hooks.transport.http import MAX_STUMBLES, HttpTransport
from trimtab.hooks.transport.spool import read_spool

Eventually = Callable[[Callable[[], bool]], None]
FAST = Backoff(first=0.01, cap=0.02)


def report(step: int) -> Report:
    return Report(StepSummary(job="run", attempt=1, step=step))


def steps(summaries: list[dict[str, Any]]) -> list[int]:
    return [item["step"] for item in summaries]


def test_a_reply_that_no_agent_gives_is_not_a_delivery(agent: Any, eventually: Eventually) -> None:
    replies = iter([(200, {}, b"<html>sign in</html>"), (200, {}, []), (200, {}, {"status": "fine"})])
    agent.answer = lambda _: next(replies, (200, {}, {"command": None}))
    transport = HttpTransport(agent.url, backoff=FAST)
    transport.send(report(7))
    eventually(lambda: len(agent.seen) == 4)
    transport.close(2)
    assert steps(agent.seen) == [7, 7, 7, 7]


def test_a_command_that_cannot_be_read_does_not_cost_the_summary(agent: Any, eventually: Eventually) -> None:
    agent.answer = lambda _: (200, {}, {"command": {"generation": "many"}})
    transport = HttpTransport(agent.url)
    transport.send(report(0))
    transport.send(report(1))
    eventually(lambda: len(agent.taken) == 2)
    transport.close(2)
    assert transport.command() is None
    assert steps(agent.seen) == [0, 1]


DEEP = b"[" * 100_000
HUGE = {"job": "run", "attempt": 1, "generation": 1, "overrides": {"clip_low": 10**400}, "reason": "", "issuer": "me"}


@pytest.mark.parametrize(
    "reply",
    [DEEP, b'{"command": null, "more": ' + DEEP, b'{"command": ' + b"9" * 5000 + b"}", b"\xff\xfe", b"NaN", b""],
)
def test_no_reply_ends_the_thread(agent: Any, eventually: Eventually, reply: bytes) -> None:
    replies = iter([(200, {}, reply)])
    agent.answer = lambda _: next(replies, (200, {}, {"command": None}))
    transport = HttpTransport(agent.url, backoff=FAST)
    transport.send(report(0))
    transport.send(report(1))
    eventually(lambda: steps(agent.seen) == [0, 0, 1])
    transport.close(2)
    assert transport.dropped == 0


@pytest.mark.parametrize("command", [HUGE, {"generation": 10**400}, [[[]]], "stop", 10**400, {**HUGE, "generation": 0}])
def test_no_command_ends_the_thread(
    agent: Any, eventually: Eventually, caplog: pytest.LogCaptureFixture, command: Any
) -> None:
    agent.answer = lambda _: (200, {}, {"command": command})
    transport = HttpTransport(agent.url, backoff=FAST)
    for step in range(3):
        transport.send(report(step))
    eventually(lambda: steps(agent.seen) == [0, 1, 2])
    transport.close(2)
    assert (transport.command(), transport.dropped) == (None, 0)
    assert [record.getMessage()[:38] for record in caplog.records] == ["trimtab: a command that cannot be read"]


def test_a_summary_that_cannot_be_written_is_lost_alone(agent: Any, eventually: Eventually) -> None:
    transport = HttpTransport(agent.url)
    emitter = Emitter(transport, job="run", attempt=1)
    emitter.end_step(step=0, clip_bounds=object())  # type: ignore[arg-type]
    emitter.end_step(step=1)
    eventually(lambda: steps(agent.taken) == [1])
    emitter.close()
    assert (emitter.dropped, emitter.failures) == (1, 0)


def test_a_disk_that_hangs_holds_no_step_up(agent: Any, eventually: Eventually, tmp_path: Path) -> None:
    """A pipe in the place of an old segment: opening it waits for a writer, as for a file server that is away."""
    segment = tmp_path / "000000000000.spool"
    os.mkfifo(segment)
    emitter = Emitter(HttpTransport(agent.url, spool=tmp_path), job="run", attempt=1)
    emitter.end_step(step=0)
    eventually((tmp_path / "lock").exists)
    training = threading.Thread(target=lambda: [emitter.end_step(step=step) for step in range(1, 30)], daemon=True)
    training.start()
    training.join(20)
    held_up, reached = training.is_alive(), list(agent.seen)

    def comes_back() -> bool:
        with contextlib.suppress(OSError):  # the transport has not opened it yet
            os.close(os.open(segment, os.O_WRONLY | os.O_NONBLOCK))
            return True
        return False

    eventually(comes_back)
    assert (held_up, reached) == (False, [])
    eventually(lambda: steps(agent.taken) == list(range(30)))
    emitter.close()
    assert (emitter.dropped, emitter.failures) == (0, 0)


def test_what_an_agent_that_hangs_did_not_take_is_spooled_at_the_end(
    agent: Any, eventually: Eventually, tmp_path: Path
) -> None:
    agent.answer = agent.hold
    transport = HttpTransport(agent.url, spool=tmp_path)
    for step in range(3):
        transport.send(report(step))
    eventually(agent.holding.is_set)
    transport.close(0.1)
    assert [record.step for record in read_spool(tmp_path)] == [0, 1, 2]
    assert transport.dropped == 0
    transport.send(report(3))
    transport.close(0.1)
    assert transport.dropped == 1


def test_an_agent_that_never_answers_holds_no_step_up(agent: Any, eventually: Eventually) -> None:
    agent.answer = agent.hold
    emitter = Emitter(HttpTransport(agent.url), job="run", attempt=1)
    logprobs = np.full((2, 4), -1.0, dtype=np.float32)
    emitter.end_step(step=0)
    eventually(agent.holding.is_set)
    for step in range(1, 30):
        emitter.observe(train_logprobs=logprobs, advantages=[1.0, -1.0], loss_mask=np.ones((2, 4)))
        emitter.end_step(step=step)
    assert (steps(agent.seen), agent.taken) == ([0], [])
    agent.release.set()
    eventually(lambda: len(agent.taken) == 30)
    emitter.close()
    assert emitter.failures == 0


@pytest.mark.parametrize("status", [500, 501])
def test_a_summary_that_the_agent_fails_over_every_time_does_not_blind_the_run(
    agent: Any, eventually: Eventually, tmp_path: Path, status: int
) -> None:
    agent.answer = lambda summary: (status, {}, b"boom") if summary["step"] == 1 else (200, {}, {"command": None})
    transport = HttpTransport(agent.url, backoff=FAST, spool=tmp_path)
    for step in range(4):
        transport.send(report(step))
    eventually(lambda: len(agent.taken) == 3)
    transport.close(2)
    assert steps(agent.taken) == [0, 2, 3]
    assert steps(agent.seen).count(1) == MAX_STUMBLES
    assert [summary.step for summary in read_spool(tmp_path / "rejected")] == [1]
    assert (transport.rejected, transport.dropped) == (1, 0)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_an_agent_that_is_away_is_waited_for(agent: Any, eventually: Eventually, status: int) -> None:
    tries = iter(range(100))
    agent.answer = lambda _: (status, {}, b"") if next(tries) < 2 * MAX_STUMBLES else (200, {}, {"command": None})
    transport = HttpTransport(agent.url, backoff=FAST)
    transport.send(report(0))
    eventually(lambda: len(agent.taken) == 1)
    transport.close(2)
    assert transport.rejected == 0
