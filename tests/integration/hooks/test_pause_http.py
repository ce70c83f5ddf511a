"""A trainer that waits asks an agent over HTTP, and outlives it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trimtab.hooks.controls import Capabilities, Controls, Liveness
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.layout import Report
from trimtab.hooks.pause import Patience
from trimtab.hooks.records import StepSummary
from trimtab.hooks.transport.backoff import Backoff
from trimtab.hooks.transport.http import HttpTransport
from trimtab.hooks.transport.spool import read_spool

Eventually = Callable[[Callable[[], bool]], None]
FAST = Backoff(first=0.01, cap=0.02)
CAN = Capabilities(controls={"paused": Liveness.LIVE, "clip_low": Liveness.LIVE})


def wanted(generation: int, **overrides: Any) -> tuple[int, dict[str, str], Any]:
    said = {"job": "run", "attempt": 1, "generation": generation, "overrides": overrides, "reason": "", "issuer": "me"}
    return 200, {}, {"command": said}


@pytest.fixture
def paused(agent: Any, eventually: Eventually, tmp_path: Path) -> Emitter:
    agent.answer = lambda _: wanted(1, paused=True, clip_low=0.1)
    transport = HttpTransport(agent.url, backoff=FAST, spool=tmp_path)
    emitter = Emitter(transport, job="run", attempt=1, capabilities=CAN, patience=Patience(every=0.05, tries=20))
    emitter.end_step(step=0)
    eventually(lambda: transport.command() is not None)
    assert emitter.end_step(step=1).paused
    return emitter


def test_the_last_summary_asks_until_the_agent_lets_go(agent: Any, paused: Emitter) -> None:
    asked = itertools.count()
    agent.answer = lambda _: wanted(2, clip_low=0.3) if next(asked) > 2 else wanted(1, paused=True)
    assert paused.wait_while_paused() == Controls(clip_low=0.3)
    paused.close()
    steps = [item["step"] for item in agent.seen]
    assert steps[:2] == [0, 1]
    assert len(steps) > 4
    assert set(steps[2:]) == {1}
    assert [item["step"] for item in agent.taken] == [0, 1]  # which takes equal summaries once
    assert paused.dropped == 0


def test_an_agent_that_is_killed_meanwhile_lets_the_run_go_on(agent: Any, paused: Emitter, tmp_path: Path) -> None:
    agent.stop()
    assert paused.wait_while_paused() == Controls(clip_low=0.1)
    paused.close()
    assert [item.step for item in read_spool(tmp_path)] in ([], [1])  # not one for each question
    assert paused.dropped == 0


def test_an_agent_that_comes_back_is_heard(agent: Any, paused: Emitter, eventually: Eventually) -> None:
    eventually(lambda: len(agent.taken) == 2)
    agent.stop()
    agent.answer = lambda _: wanted(2)
    agent.start()
    assert paused.wait_while_paused() == Controls()
    assert paused.generation == 2
    paused.close()


def test_a_question_that_is_refused_is_no_answer_and_is_not_kept(agent: Any, eventually: Eventually) -> None:
    transport = HttpTransport(agent.url, backoff=FAST)
    report = Report(StepSummary(job="run", attempt=1, step=0))
    transport.send(report)
    eventually(lambda: len(agent.taken) == 1)
    assert transport.ask(report, 20.0)
    agent.answer = lambda _: (409, {}, {})
    assert not transport.ask(report, 0.2)
    transport.close(2)
    assert (transport.rejected, transport.dropped, len(agent.seen)) == (0, 0, 3)
    assert not transport.ask(report, 20.0)
