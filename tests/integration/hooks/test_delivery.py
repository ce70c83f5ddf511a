"""A recording goes to an agent later, over a real loopback server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trimtab
from trimtab.hooks.transport import Delivered, deliver
from trimtab.hooks.transport.spool import Spool, read_spool


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Steps 0 to 5 of a run that had no agent."""
    with trimtab.attach(f"file:{tmp_path / 'run'}", job="run", attempt=1) as emitter:
        for step in range(6):
            emitter.end_step(step=step)
    return tmp_path / "run"


def steps(directory: Path) -> list[int]:
    return [summary.step for summary in read_spool(directory)]


def taken(agent: Any) -> list[int]:
    return [item["step"] for item in agent.taken]


def test_everything_is_delivered_oldest_first_and_once(agent: Any, recording: Path) -> None:
    assert deliver(recording, agent.url, token="secret") == Delivered(sent=6, rejected=0)
    assert (taken(agent), steps(recording)) == ([0, 1, 2, 3, 4, 5], [])
    assert {headers["Authorization"] for headers in agent.headers} == {"Bearer secret"}
    assert deliver(recording, agent.url) == Delivered(sent=0, rejected=0)
    assert len(agent.seen) == 6


def test_what_the_agent_refuses_is_kept_apart(agent: Any, recording: Path) -> None:
    agent.answer = lambda item: (422, {}, {"detail": "no"}) if item["step"] in (1, 4) else (200, {}, {"command": None})
    assert deliver(recording, agent.url) == Delivered(sent=4, rejected=2)
    assert (taken(agent), steps(recording), steps(recording / "rejected")) == ([0, 2, 3, 5], [], [1, 4])


@pytest.mark.parametrize("reply", [(503, {"Retry-After": "60"}, b"later"), (200, {}, b"<html>sign in</html>")])
def test_the_first_that_finds_no_agent_ends_it_and_the_next_goes_on_there(
    agent: Any, recording: Path, reply: Any
) -> None:
    agent.answer = lambda item: reply if item["step"] >= 2 else (200, {}, {"command": None})
    assert deliver(recording, agent.url) == Delivered(sent=2, rejected=0, left=4)
    assert steps(recording) == [2, 3, 4, 5]
    agent.stop()
    assert deliver(recording, agent.url) == Delivered(sent=0, rejected=0, left=4)
    agent.start()
    agent.answer = lambda _: (200, {}, {"command": None})
    assert deliver(recording, agent.url) == Delivered(sent=4, rejected=0)
    assert taken(agent) == [0, 1, 2, 3, 4, 5]


def test_what_a_running_process_writes_is_left_alone(agent: Any, recording: Path) -> None:
    writer = Spool(recording)
    writer.claim()
    with pytest.raises(BlockingIOError, match="run: a running process is using it"):
        deliver(recording, agent.url)
    writer.close()
    assert deliver(recording, agent.url).sent == 6


def test_what_is_damaged_is_told_and_what_cannot_be_read_now_stays(agent: Any, recording: Path) -> None:
    (segment,) = recording.glob("*.spool")
    aside = recording / "aside"
    segment.rename(aside)
    segment.symlink_to(segment)
    with pytest.raises(OSError, match="run: cannot be read to the end now"):
        deliver(recording, agent.url)
    content = bytearray(aside.read_bytes())
    content[20] ^= 1
    aside.write_bytes(content)
    aside.replace(segment)
    assert deliver(recording, agent.url) == Delivered(sent=5, rejected=0, damaged=1)
    assert taken(agent) == [1, 2, 3, 4, 5]


def test_a_folder_without_a_recording_is_told_apart_from_one_that_is_done(agent: Any, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match="nothing was recorded here"):
            deliver(folder, agent.url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["file:elsewhere", "http://", "localhost:8787"])
def test_only_an_agent_over_http_can_be_delivered_to(recording: Path, url: str) -> None:
    with pytest.raises(ValueError, match="has no host"):
        deliver(recording, url)
    assert steps(recording) == [0, 1, 2, 3, 4, 5]


def test_a_refused_summary_that_cannot_be_kept_stays_where_it_is(agent: Any, recording: Path) -> None:
    (recording / "rejected").write_text("in the way")
    agent.answer = lambda item: (422, {}, {}) if item["step"] == 1 else (200, {}, {"command": None})
    with pytest.raises(OSError, match="does not take a summary that the agent refused"):
        deliver(recording, agent.url)
    assert steps(recording) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("status", [401, 403])
def test_whoever_is_not_let_in_is_told_why_and_keeps_everything(
    agent: Any, recording: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    def answer(_: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
        return (200, {}, {"command": None}) if agent.headers[-1].get("Authorization") == "Bearer good" else no

    no: tuple[int, dict[str, str], Any] = (status, {}, {"errors": [{"message": "this token is not valid here"}]})
    agent.answer = answer
    done = deliver(recording, agent.url, "bad")
    assert (done.sent, done.rejected, done.left) == (0, 0, 6)
    assert done.barred == f'{status} {{"errors": [{{"message": "this token is not valid here"}}]}}'
    monkeypatch.setenv("TRIMTAB_TOKEN", "good\n")
    assert deliver(recording, agent.url) == Delivered(sent=6, rejected=0)
