"""The HTTP transport against a real loopback server that dies, refuses, hangs and comes back."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.hooks.controls import Capabilities, Liveness
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.layout import Report
from trimtab.hooks.records import StepSummary
from trimtab.hooks.transport.backoff import Backoff
from trimtab.hooks.transport.base import TokenError
from trimtab.hooks.transport.http import HttpTransport
from trimtab.hooks.transport.spool import read_spool

Eventually = Callable[[Callable[[], bool]], None]
FAST = Backoff(first=0.01, cap=0.02)


def report(step: int) -> Report:
    return Report(StepSummary(job="run", attempt=1, step=step))


def steps(summaries: list[dict[str, Any]]) -> list[int]:
    return [item["step"] for item in summaries]


def test_summaries_arrive_in_order_at_the_agents_path_with_the_token(agent: Any, eventually: Eventually) -> None:
    transport = HttpTransport(agent.url + "/", token="secret")
    for step in range(20):
        transport.send(report(step))
    eventually(lambda: len(agent.taken) == 20)
    transport.close(2)
    assert steps(agent.taken) == list(range(20))
    assert set(agent.paths) == {"/v1/summaries"}
    assert {headers["Authorization"] for headers in agent.headers} == {"Bearer secret"}
    assert (transport.dropped, transport.rejected) == (0, 0)


@pytest.mark.parametrize("spooled", [True, False])
def test_killed_agent_gets_everything_once_and_in_order_when_it_is_back(
    agent: Any, eventually: Eventually, tmp_path: Path, spooled: bool
) -> None:
    transport = HttpTransport(agent.url, spool=tmp_path if spooled else None, backoff=FAST)
    for step in range(5):
        transport.send(report(step))
    eventually(lambda: len(agent.taken) == 5)
    agent.stop()
    for step in range(5, 40):
        transport.send(report(step))
    if spooled:
        eventually(lambda: len(list(read_spool(tmp_path))) == 35)
    agent.start()
    for step in range(40, 45):
        transport.send(report(step))
    eventually(lambda: len(agent.taken) >= 45)
    transport.close(2)
    assert steps(agent.taken) == list(range(45))
    assert transport.dropped == 0


def test_what_is_left_at_the_end_is_spooled_told_and_delivered_by_the_next_process(
    agent: Any, eventually: Eventually, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent.stop()
    first = HttpTransport(agent.url, spool=tmp_path, backoff=FAST)
    for step in range(3):
        first.send(report(step))
    first.close(2)
    start, end = (record.getMessage() for record in caplog.records)
    assert start == f"trimtab: no answer from {agent.url}; summaries wait in {tmp_path} until it is back"
    assert f"are in {tmp_path}; once it is there, `trimtab sync {tmp_path} --url {agent.url}` delivers them" in end
    assert [record.step for record in read_spool(tmp_path)] == [0, 1, 2]
    agent.start()
    second = HttpTransport(agent.url, spool=tmp_path, backoff=FAST)
    second.send(report(3))
    eventually(lambda: len(agent.taken) == 4)
    second.close(2)
    assert steps(agent.taken) == [0, 1, 2, 3]
    assert list(read_spool(tmp_path)) == []


def test_closing_without_spool_counts_what_is_lost(agent: Any) -> None:
    agent.stop()
    transport = HttpTransport(agent.url, backoff=FAST)
    for step in range(3):
        transport.send(report(step))
    transport.close(2)
    assert transport.dropped == 3


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_overloaded_agent_is_tried_again(agent: Any, eventually: Eventually, status: int) -> None:
    refusals = iter([(status, {"Retry-After": "0"}, b"later")] * 3)
    agent.answer = lambda _: next(refusals, (200, {}, {"command": None}))
    transport = HttpTransport(agent.url, backoff=FAST)
    transport.send(report(0))
    transport.send(report(1))
    eventually(lambda: len(agent.taken) == 2)
    transport.close(2)
    assert steps(agent.seen) == [0, 0, 0, 0, 1]
    assert steps(agent.taken) == [0, 1]


def test_a_refused_summary_is_kept_counted_and_not_tried_again(
    agent: Any, eventually: Eventually, tmp_path: Path
) -> None:
    agent.answer = lambda item: (422, {}, {"detail": "no"}) if item["step"] == 1 else (200, {}, {"command": None})
    transport = HttpTransport(agent.url, spool=tmp_path, backoff=FAST)
    for step in range(3):
        transport.send(report(step))
    eventually(lambda: len(agent.taken) == 2)
    transport.close(2)
    assert steps(agent.seen) == [0, 1, 2]
    assert [record.step for record in read_spool(tmp_path / "rejected")] == [1]
    assert (transport.rejected, transport.dropped) == (1, 0)


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("spooled", [True, False])
def test_nothing_is_lost_while_the_token_is_not_taken(
    agent: Any,
    eventually: Eventually,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    status: int,
    spooled: bool,
) -> None:
    agent.answer = lambda _: (status, {}, {"errors": [{"message": "this token is not valid here"}]})
    transport = HttpTransport(agent.url, token="stale", spool=tmp_path if spooled else None, backoff=FAST)
    for step in range(5):
        transport.send(report(step))
    eventually(lambda: len(agent.seen) >= 3)
    agent.answer = lambda _: (200, {}, {"command": None})
    eventually(lambda: len(agent.taken) == 5)
    transport.close(2)
    assert steps(agent.taken) == list(range(5))
    assert (transport.rejected, transport.dropped) == (0, 0)
    assert not (tmp_path / "rejected").exists()
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"{agent.url} does not let this job in: {status} " in told
    assert "See to its token" in told
    assert "stale" not in told


def test_the_token_of_the_environment_is_sent_where_none_is_given(agent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_TOKEN", " of-the-environment\n")
    for given in (None, "given", ""):
        transport = HttpTransport(agent.url, token=given)
        transport.send(report(0))
        transport.close(10)  # waits for the answer
    assert [headers.get("Authorization") for headers in agent.headers] == [
        "Bearer of-the-environment",
        "Bearer given",
        None,
    ]


@pytest.mark.parametrize("token", ["two words", "a\nb", "ttb_Ä", "a\0b"])
def test_a_token_that_cannot_be_sent_is_told_before_training(token: str) -> None:
    with pytest.raises(TokenError, match="token: what is given, or in TRIMTAB_TOKEN, is no token") as caught:
        HttpTransport("http://127.0.0.1:1", token=token)
    assert token not in str(caught.value)


def test_without_spool_a_refused_summary_is_lost_and_counted(agent: Any, eventually: Eventually) -> None:
    agent.answer = lambda _: (422, {}, {})
    transport = HttpTransport(agent.url, backoff=FAST)
    transport.send(report(0))
    eventually(lambda: transport.rejected == 1)
    transport.close(2)
    assert transport.dropped == 1


def test_a_full_queue_drops_the_oldest_and_says_so(agent: Any, eventually: Eventually) -> None:
    agent.answer = agent.hold
    transport = HttpTransport(agent.url, capacity=4)
    transport.send(report(0))
    eventually(agent.holding.is_set)
    for step in range(1, 10):
        transport.send(report(step))
    assert transport.dropped == 6
    agent.release.set()
    eventually(lambda: len(agent.taken) == 5)
    transport.close(2)
    assert steps(agent.taken) == [0, 6, 7, 8, 9]


def test_a_command_in_the_reply_is_applied_at_a_step_boundary(agent: Any, eventually: Eventually) -> None:
    command = {
        "job": "run",
        "attempt": 1,
        "generation": 3,
        "overrides": {"clip_low": 0.1, "importance_high": "Infinity"},
        "reason": "",
        "issuer": "agent",
    }
    agent.answer = lambda _: (200, {}, {"command": command, "result": "stored"})
    transport = HttpTransport(agent.url)
    live = {"clip_low": Liveness.LIVE, "importance_high": Liveness.LIVE}
    emitter = Emitter(transport, job="run", attempt=1, capabilities=Capabilities(controls=live))
    emitter.end_step(step=0)
    eventually(lambda: transport.command() is not None)
    controls = emitter.end_step(step=1)
    assert (controls.clip_low, controls.importance_high) == (0.1, float("inf"))
    emitter.end_step(step=2)
    eventually(lambda: len(agent.taken) == 3)
    emitter.close()
    assert [item["generation"] for item in agent.taken] == [0, 0, 3]
    assert [item["applied"]["clip_low"] for item in agent.taken] == [0.2, 0.2, 0.1]


def test_a_server_that_closes_idle_connections_costs_no_pause(agent: Any, eventually: Eventually) -> None:
    agent.answer = lambda _: (200, {"Connection": "close"}, {"command": None})
    transport = HttpTransport(agent.url, backoff=Backoff(first=1e6, cap=1e6))
    for step in range(3):
        transport.send(report(step))
        eventually(lambda: len(agent.taken) == step + 1)  # noqa: B023
    transport.close(2)
    assert steps(agent.taken) == [0, 1, 2]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_process_leaves_its_parents_agent_alone(agent: Any, eventually: Eventually) -> None:
    emitter = Emitter(HttpTransport(agent.url), job="run", attempt=1)
    emitter.end_step(step=0)
    eventually(lambda: len(agent.taken) == 1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            emitter.observe(train_logprobs=np.zeros((1, 1)), advantages=[1.0], loss_mask=np.ones((1, 1)))
            controls = emitter.end_step(step=99)
            emitter.close()
            os.write(writer, json.dumps([controls.clip_low, emitter.failures]).encode())
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert json.loads(os.read(reader, 100)) == [0.2, 0]
    os.close(reader)
    os.close(writer)
    emitter.end_step(step=1)
    eventually(lambda: len(agent.taken) == 2)
    emitter.close()
    assert steps(agent.taken) == [0, 1]


def test_url_without_a_host_is_refused() -> None:
    with pytest.raises(ValueError, match=r"url: 'http://' has no host"):
        HttpTransport("http://")
    with pytest.raises(ValueError, match=r"url: 'localhost:8787' has no host"):
        HttpTransport("localhost:8787")


def test_nobody_listens(tmp_path: Path, eventually: Eventually) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    transport = HttpTransport(f"http://127.0.0.1:{port}", spool=tmp_path, backoff=FAST)
    emitter = Emitter(transport, job="run", attempt=1)
    for step in range(5):
        emitter.end_step(step=step)
    eventually(lambda: len(list(read_spool(tmp_path))) == 5)
    emitter.close()
    assert (transport.dropped, emitter.failures) == (0, 0)
