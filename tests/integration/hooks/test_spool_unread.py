"""What a transport does while its spool cannot be read: it waits for its own a while, and loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trimtab.hooks.layout import Report
from trimtab.hooks.records import StepSummary
from trimtab.hooks.transport.backoff import Backoff
from trimtab.hooks.transport.http import HttpTransport
from trimtab.hooks.transport.spool import Spool
from trimtab.hooks.wire import encode

Eventually = Callable[[Callable[[], bool]], None]
FAST = Backoff(first=0.01, cap=0.02)


def summary(step: int) -> StepSummary:
    return StepSummary(job="run", attempt=1, step=step)


def taken(agent: Any) -> list[int]:
    return [item["step"] for item in agent.taken]


def spooled(directory: Path) -> Spool:
    """Steps 0 to 2."""
    spool = Spool(directory)
    for step in range(3):
        assert spool.append(encode(summary(step)))
    return spool


@pytest.fixture
def unreadable(tmp_path: Path) -> tuple[Path, Path]:
    """A segment that nobody can open, and where it is meanwhile."""
    spooled(tmp_path).close()
    (segment,) = tmp_path.glob("*.spool")
    aside = tmp_path / "aside"
    segment.rename(aside)
    segment.symlink_to(segment)
    return segment, aside


def test_newer_summaries_wait_for_a_spool_that_cannot_be_read_for_a_moment(
    agent: Any, eventually: Eventually, tmp_path: Path, unreadable: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    transport = HttpTransport(agent.url, spool=tmp_path, backoff=Backoff(first=1.0))
    transport.send(Report(summary(3)))
    eventually(lambda: bool(caplog.records))
    segment, aside = unreadable
    aside.replace(segment)
    eventually(lambda: len(agent.taken) == 4)
    transport.close(2)
    assert (taken(agent), transport.dropped) == ([0, 1, 2, 3], 0)
    (said,) = (item.getMessage() for item in caplog.records)
    assert said.startswith(f"trimtab: {tmp_path} cannot be read now: [Errno ")


def test_a_spool_that_stays_unreadable_does_not_blind_the_run_and_is_tried_again(
    agent: Any, eventually: Eventually, tmp_path: Path, unreadable: tuple[Path, Path]
) -> None:
    transport = HttpTransport(agent.url, spool=tmp_path, backoff=FAST)
    for step in (3, 4):
        transport.send(Report(summary(step)))
    eventually(lambda: taken(agent) == [3, 4])
    segment, aside = unreadable
    aside.replace(segment)
    eventually(lambda: len(agent.taken) == 5)
    transport.close(2)
    assert (taken(agent), transport.dropped) == ([3, 4, 0, 1, 2], 0)
    assert list(tmp_path.glob("*.spool")) == []


def test_what_another_process_had_is_delivered_once_that_has_ended(
    agent: Any, eventually: Eventually, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = spooled(tmp_path)
    transport = HttpTransport(agent.url, spool=tmp_path, backoff=FAST)
    transport.send(Report(summary(3)))
    eventually(lambda: taken(agent) == [3])
    other.close()
    eventually(lambda: len(agent.taken) == 4)
    transport.close(2)
    assert (taken(agent), transport.dropped) == ([3, 0, 1, 2], 0)
    assert [item.getMessage() for item in caplog.records] == [
        f"trimtab: {tmp_path} cannot be read now: another process has it; what is there is kept for later "
        "(more of this kind will only be counted)"
    ]
