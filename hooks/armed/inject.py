"""Activation in a process that is not armed, by code that is put into it from outside. Never by default.

From Python 3.14 on the interpreter does it itself, at its next safe point (`sys.remote_exec`, PEP 768). Before, hypno
makes a library that waits for the interpreter's lock and runs the code, and by ptrace a thread that waits is made to
load it (`idle_thread`).

The code only loads the stub and starts its thread, which then does what it does in an armed process.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trimtab.hooks.armed import idle_thread, stub
from trimtab.hooks.armed.process import ContactError, Process, python_of

REMOTE_EXEC = (3, 14)
"""First version of Python that takes code from outside by itself."""
SAMPLE_SECONDS = 0.0005
CODE = """
def _trimtab_begin():
    import _thread
    import sys

    module = sys.modules.get({name!r})
    if module is None:
        import importlib.util

        spec = importlib.util.spec_from_file_location({name!r} + "_injected", {path!r})
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    _thread.start_new_thread(module.begin, ())


_trimtab_begin()
del _trimtab_begin
"""
"""Runs among the globals of the program, where it leaves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """For how long a process was held by an injection."""

    seconds: float
    """Longest time that its main thread was seen stopped, from sample to sample."""
    resolution: float
    """Longest time between two samples, s; the stop may have been longer or shorter by as much."""


def injector(found: Process, stops: list[Stop]) -> Callable[[Process], None]:
    """What makes `found` look at a request, whether it is armed or not; how long it was stopped is put into `stops`.

    Raises:
        ContactError: the versions of Python on the two sides do not allow it, or what it needs is not installed.
    """
    theirs, ours = python_of(found.pid), sys.version_info[:2]
    if theirs is None:
        raise ContactError(
            f"process {found.pid} is no Python that could be told, or /proc/{found.pid}/maps may not be read: "
            f"{permissions(found)}"
        )
    if theirs >= REMOTE_EXEC:
        if ours != theirs:
            raise ContactError(
                f"process {found.pid} runs Python {_dotted(theirs)}, which takes code from that version alone, and "
                f"this is Python {_dotted(ours)}"
            )
        return _by_remote_exec
    if importlib.util.find_spec("hypno") is None:
        raise ContactError(
            f"process {found.pid} runs Python {_dotted(theirs)}, and below {_dotted(REMOTE_EXEC)} injection needs "
            "hypno: pip install 'trimtab[inject]'"
        )

    def by_hypno(found: Process) -> None:
        stops.append(_by_hypno(found))

    return by_hypno


def permissions(found: Process) -> str:
    """What stands between this process and `found`, and what to do about it."""
    if os.geteuid() not in (0, found.uid):
        return f"it belongs to user {found.owner}: run this as that user, or as root"
    try:
        scope = Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip()
    except OSError:
        scope = "0"
    if scope == "1":
        return (
            "kernel.yama.ptrace_scope is 1, so a process may be traced by its parents alone: run this as root, or let "
            "root set it to 0 for the while"
        )
    if scope == "2":
        return "kernel.yama.ptrace_scope is 2: only a user with CAP_SYS_PTRACE may trace; run this as root"
    if scope == "3":
        return "kernel.yama.ptrace_scope is 3: nothing may be traced until the machine starts anew"
    return (
        "in a container it takes the capability SYS_PTRACE (docker run --cap-add=SYS_PTRACE; in Kubernetes "
        "securityContext.capabilities.add), and the seccomp profile may forbid it"
    )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _code() -> str:
    return CODE.format(name=stub.NAME, path=stub.__file__)


def _by_remote_exec(found: Process) -> None:
    """Have the interpreter run the code at its next safe point; it is not stopped for it."""
    with tempfile.NamedTemporaryFile("w", prefix="trimtab-", suffix=".py", delete=False) as script:
        script.write(_code())
        script.write(f"\nimport os\nos.unlink({script.name!r})\n")
    if os.geteuid() != found.uid:
        os.chown(script.name, found.uid, -1)
    try:
        sys.remote_exec(found.pid, script.name)  # type: ignore[attr-defined,unused-ignore]
    except (OSError, RuntimeError) as error:
        Path(script.name).unlink(missing_ok=True)
        raise ContactError(f"process {found.pid} takes no code ({error}): {permissions(found)}") from error


def _by_hypno(found: Process) -> Stop:
    """Inject from a process of its own, from beside which the target is watched, and which may crash."""
    command = [sys.executable, "-P", idle_thread.__file__, str(found.pid), _code()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as injecting:
        stop = _watched(found, lambda: injecting.poll() is not None)
        told = injecting.stdout.read() if injecting.stdout else ""
    if injecting.returncode == idle_thread.NONE_WAITS:
        raise ContactError(
            f"no thread of process {found.pid} has waited for anything in {idle_thread.PATIENCE:g} s, and one that "
            "computes is not interrupted, since that can break it; nothing was changed. Arm the environment instead"
        )
    if injecting.returncode != 0:
        last = told.strip().splitlines()[-1:] or [f"exit status {injecting.returncode}"]
        raise ContactError(f"process {found.pid} could not be injected into ({last[0]}): {permissions(found)}")
    return stop


def _watched(found: Process, over: Callable[[], bool]) -> Stop:
    """The longest time for which a debugger held the target's main thread, until `over`."""
    stat = Path(f"/proc/{found.pid}/task/{found.pid}/stat")
    longest = resolution = 0.0
    since: float | None = None
    before = time.perf_counter()
    while not over():
        try:
            held = stat.read_text().rpartition(")")[2].split()[0] == "t"
        except OSError:  # it has ended
            break
        now = time.perf_counter()
        resolution = max(resolution, now - before)
        before = now
        if not held:
            since = None
        elif since is None:
            since = now
        if since is not None:
            longest = max(longest, now - since)
        time.sleep(SAMPLE_SECONDS)
    return Stop(seconds=longest, resolution=resolution)
