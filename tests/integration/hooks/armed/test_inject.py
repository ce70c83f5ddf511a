"""Activation in a process that was not armed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from armed_loop import Loop
from armed_runs import LOOP, TRAINER, Environment, training

from trimtab.hooks.armed import idle_thread
from trimtab.hooks.armed.contact import ask
from trimtab.hooks.armed.inject import CODE, injector, permissions
from trimtab.hooks.armed.process import ContactError, process, python_of
from trimtab.hooks.armed.stub import NAME
from trimtab.hooks.armed.stub import __file__ as stub_file

ATTACH = {
    "do": "attach",
    "url": "memory:",
    "job": "j",
    "class": "__main__.Loop",
    "adapter": "__main__.attach",
    "wait": 5,
}
RISK = ("--inject", "--i-accept-the-risk")
hypno = pytest.mark.skipif(
    importlib.util.find_spec("hypno") is None and os.environ.get("CI") != "true", reason="hypno is not installed"
)


@hypno
def test_attached_and_detached_in_a_process_that_was_not_armed(plain: Environment, tmp_path: Path) -> None:
    with training(plain, tmp_path) as job:
        url = f"file:{tmp_path / 'recorded'}"
        answer = plain.answer("attach", "--pid", str(job.pid), "--url", url, "--job-name", "late", *TRAINER, *RISK)
        assert (answer["trainer"], answer["pid"]) == ("__main__.Loop", job.pid)
        assert {"stopped_seconds", "stopped_resolution_seconds"} <= set(answer)
        while not list((tmp_path / "recorded").rglob("*.*")):
            time.sleep(0.02)
        told = plain.trimtab("detach", "--pid", str(job.pid), *RISK).stdout.splitlines()
        assert told[0] == f"process {job.pid}: late is detached from {url}"
        assert told[1].startswith("its main thread was seen stopped for ")
        end = job.finished()
    assert end["digest"] == Loop().trained(end["steps"]).digest()
    assert (end["own"], end["threads"], end["globals"]) == (sorted(vars(Loop())), ["MainThread"], [])


@hypno
def test_many_injections_into_a_process_that_computes_and_one_of_whose_threads_waits(
    plain: Environment, tmp_path: Path
) -> None:
    program = f"""
import runpy, threading, time
wait = threading.Event()
threading.Thread(target=wait.wait, name="waits").start()
time.sleep = lambda _: sum(range(20_000))
runpy.run_path({str(LOOP)!r}, run_name="__main__")
wait.set()
"""
    with training(plain, tmp_path, program) as job:
        found = process(job.pid)
        assert ask(found, ATTACH, timeout=30, waking=injector(found, []))["job"] == "j"
        for _ in range(10):
            with pytest.raises(ContactError, match="attached to memory: as j already"):
                ask(found, ATTACH, timeout=30, waking=injector(found, []))
        assert ask(found, {"do": "detach"}, timeout=30, waking=injector(found, []))["job"] == "j"
        end = job.finished()
    assert end["digest"] == Loop().trained(end["steps"]).digest()
    assert end["threads"] == ["MainThread", "waits"]


@hypno
def test_a_thread_that_computes_is_never_taken(plain: Environment, tmp_path: Path) -> None:
    program = f"""
import runpy, time
time.sleep = lambda _: sum(range(20_000))
runpy.run_path({str(LOOP)!r}, run_name="__main__")
"""
    with training(plain, tmp_path, program) as job:
        assert not idle_thread.injected(job.pid, str(tmp_path / "none.so"), patience=0.5)
        end = job.finished()
    assert end["digest"] == Loop().trained(end["steps"]).digest()


@pytest.mark.parametrize(("program", "waits"), [("input()", True), ("while True: pass", False)])
def test_a_thread_that_waits_is_told_from_one_that_computes(program: str, waits: bool, plain: Environment) -> None:
    command = [plain.python, "-c", f"print(1, flush=True)\n{program}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            until = time.monotonic() + 20
            while idle_thread.waits(other.pid, other.pid) is not waits:
                assert time.monotonic() < until
                time.sleep(0.01)
            assert idle_thread.threads(other.pid) == [other.pid]
            assert not idle_thread.waits(other.pid, 1)  # which is no thread of it
        finally:
            other.kill()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--pid", "1", "--inject"), "inject: code is put into the process from outside, which stops it for a moment, "
         "and may hang or end it; say --i-accept-the-risk, or arm the environment (trimtab arm) before the job starts"),
        (("--job", "x", *RISK), "inject: give --pid; command lines are looked for among armed processes"),
        ((), "pid, job: give one of them"),
        (("--pid", "999999999"), "pid: there is no process 999999999"),
    ],
)  # fmt: skip
def test_what_is_not_even_tried(arguments: tuple[str, ...], why: str, plain: Environment) -> None:
    done = plain.trimtab("attach", "--job-name", "late", *arguments, check=False)
    assert (done.returncode, done.stderr) == (2, f"error: {why}\n")


def test_what_is_no_python_is_refused() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            while python_of(other.pid):  # until it is no more the Python that starts it
                time.sleep(0.01)
            with pytest.raises(ContactError, match=f"process {other.pid} is no Python that could be told"):
                injector(process(other.pid), [])
        finally:
            other.kill()


def test_a_later_python_takes_code_from_its_own_version_alone(tmp_path: Path) -> None:
    later = tmp_path / "python3.14"
    shutil.copy(os.path.realpath(sys.executable), later)  # by its name alone
    environment = os.environ | {"PYTHONHOME": sys.base_prefix}
    with subprocess.Popen([later, "-c", "input()"], stdin=subprocess.PIPE, env=environment) as other:
        try:
            while python_of(other.pid) != (3, 14):
                assert other.poll() is None
                time.sleep(0.01)
            ours = ".".join(map(str, sys.version_info[:2]))
            with pytest.raises(
                ContactError, match=rf"runs Python 3\.14, which takes code from that .*is Python {ours}"
            ):
                injector(process(other.pid), [])
        finally:
            other.kill()


def test_the_code_of_both_ways_leaves_nothing_among_the_programs_globals(plain: Environment) -> None:
    program = f"import json; exec({CODE.format(name=NAME, path=stub_file)!r}, globals()); print(sorted(globals()))"
    shown = plain.code(program)
    assert [name for name in eval(shown) if not name.startswith("__")] == ["json"]


def test_what_stands_in_the_way_is_named() -> None:
    found = process(os.getpid())
    told = permissions(found)
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    assert ("ptrace_scope" in told) == (scope.exists() and scope.read_text().strip() != "0")
    assert ("SYS_PTRACE" in told) == ("ptrace_scope is 1" not in told and "is 3" not in told)
