from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import lab_work
import pytest
from lab_work import PATIENCE, die, fail, sleep, write

from trimtab.api.workers import Ended, Work, perform


def work(name: str, function: object, *arguments: object, log: Path) -> Work:
    return Work(name=name, function=function, arguments=arguments, log=log / f"{name}.txt")  # type: ignore[arg-type]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_one_that_fails_or_dies_takes_nothing_with_it(tmp_path: Path) -> None:
    works = [
        work("bad", fail, "no such luck", log=tmp_path),
        work("killed", die, log=tmp_path),
        work("good", write, tmp_path / "done", "yes", log=tmp_path),
    ]
    seen: list[Ended] = []
    ended = perform(works, 2, on_end=seen.append)
    assert {one.name: one.error for one in ended} == {
        "bad": "ValueError: no such luck",
        "killed": "the process was ended by SIGKILL",
        "good": "",
    }
    assert seen == ended
    assert (tmp_path / "done").read_text() == "yes"
    assert "Traceback" in (tmp_path / "bad.txt").read_text()


def test_an_error_is_told_where_the_log_takes_no_more() -> None:
    full = Work(name="bad", function=fail, arguments=("the disk is full",), log=Path("/dev/full"))
    (ended,) = perform([full], 1)
    assert ended.error == "ValueError: the disk is full"


def test_a_log_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    (ended,) = perform([Work(name="bad", function=write, arguments=(), log=tmp_path)], 1)
    assert ended.error.startswith("IsADirectoryError: ")


def test_no_more_at_a_time_than_asked_for(tmp_path: Path) -> None:
    running, most = 0, 0

    def started(_: Work) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)

    def ended(_: Ended) -> None:
        nonlocal running
        running -= 1

    works = [work(f"w{i}", write, tmp_path / f"{i}", "", log=tmp_path) for i in range(4)]
    perform(works, 1, on_start=started, on_end=ended)
    assert most == 1


def test_an_interrupt_ends_what_is_running(tmp_path: Path) -> None:
    path = tmp_path / "pid"

    def tick() -> None:
        if path.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perform([work("long", sleep, path, log=tmp_path)], 1, on_tick=tick)
    assert not is_running(int(path.read_text()))


def test_children_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with subprocess.Popen([sys.executable, lab_work.__file__, str(path)]) as parent:
        deadline = time.monotonic() + PATIENCE
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        child = int(path.read_text())
        parent.kill()
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(child)
