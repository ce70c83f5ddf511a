"""Joining an agent: what is refused before step 0, and which rank a process is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hook_runs import CAN

import trimtab
from trimtab.hooks.controls import Capabilities, Controls, Liveness
from trimtab.hooks.transport.file import FileTransport
from trimtab.hooks.transport.http import HttpTransport
from trimtab.hooks.transport.memory import MemoryTransport


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory:", MemoryTransport),
        ("file:run", FileTransport),
        ("http://host:1", HttpTransport),
        ("https://host", HttpTransport),
    ],
)
def test_the_scheme_says_how_summaries_travel(
    url: str, kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with trimtab.attach(url, job="run", spool=None) as emitter:
        assert type(emitter.transport) is kind
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"job": "no spaces"}, "job: 'no spaces' must be"),
        ({"job": "run", "attempt": -1}, "attempt: -1 is negative"),
        ({"job": "run", "rank": -1}, "rank: -1 is negative"),
        ({"job": "run", "url": "ftp://host"}, "url: 'ftp://host' starts with none of http:"),
        ({"job": "run", "url": "file:"}, "url: 'file:' names no path"),
        ({"job": "run", "url": "http:///x"}, "url: 'http:///x' has no host"),
    ],
)
def test_what_cannot_be_fails_before_the_first_step(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trimtab.attach(**{"url": "memory:", **arguments})


def test_attempts_are_numbered_by_the_clock_and_a_number_may_be_given() -> None:
    with trimtab.attach("memory:", job="run") as first, trimtab.attach("memory:", job="run", attempt=4) as second:
        assert first.attempt > 1_700_000_000
        assert second.attempt == 4


def test_what_is_given_is_reported() -> None:
    own = Controls(clip_high=0.28)
    with trimtab.attach("memory:", job="run", attempt=1, controls=own, capabilities=CAN, rank=0) as emitter:
        assert emitter.end_step(step=0) == own
        (sent,) = emitter.transport.sent  # type: ignore[attr-defined]
    assert (sent.applied, sent.capabilities, sent.rank) == (own, CAN, 0)


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, 0),
        ({"RANK": "3"}, 0),
        ({"WORLD_SIZE": "8"}, 0),
        ({"RANK": "3", "WORLD_SIZE": "1"}, 0),
        ({"RANK": "3", "WORLD_SIZE": "many"}, 0),
        ({"RANK": "x", "WORLD_SIZE": "1"}, 0),
        ({"RANK": "3", "WORLD_SIZE": "8"}, 3),
        ({"RANK": "0", "WORLD_SIZE": "8"}, 0),
    ],
)
def test_a_distributed_run_is_told_by_its_environment(
    environment: dict[str, str], rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with trimtab.attach("memory:", job="run") as found, trimtab.attach("memory:", job="run", rank=5) as given:
        assert (found.rank, given.rank) == (rank, 5)


def test_a_rank_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "first")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(ValueError, match="RANK: 'first' in the environment is not a rank"):
        trimtab.attach("memory:", job="run")


@pytest.mark.parametrize("when", [Liveness.LIVE, Liveness.NEXT_ROLLOUT])
def test_without_a_collective_only_rank_0_may_have_live_controls(
    when: Liveness, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = Capabilities(controls={"clip_low": Liveness.ABSENT, "clip_high": when})
    with pytest.raises(ValueError, match=r"capabilities: rank 1 cannot have live controls \(clip_high\) .*collective"):
        trimtab.attach("memory:", job="run", rank=1, capabilities=live)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(ValueError, match="capabilities: rank 2 cannot"):
        trimtab.attach("memory:", job="run", capabilities=live)
    with trimtab.attach("memory:", job="run", rank=0, capabilities=live) as emitter:
        assert emitter.capabilities is live


@pytest.mark.parametrize(
    "capabilities",
    [None, Capabilities(controls={}, rollout_logprobs=True), Capabilities(controls={"train_format": Liveness.RESTART})],
)
def test_any_rank_may_be_watched(capabilities: Capabilities | None) -> None:
    with trimtab.attach("memory:", job="run", rank=7, capabilities=capabilities) as emitter:
        assert emitter.rank == 7


def test_a_run_that_reports_to_nobody_does_not_fill_the_memory() -> None:
    with trimtab.attach("memory:", job="run") as emitter:
        for step in range(1010):
            emitter.end_step(step=step)
        assert isinstance(emitter.transport, MemoryTransport)
        assert len(emitter.transport.sent) == 1000
        assert emitter.transport.sent[-1].step >= 1008
