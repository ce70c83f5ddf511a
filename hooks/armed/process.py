"""What Linux tells of another process: whose it is, how it was started, and whether it handles SIGURG."""

from __future__ import annotations

import os
import pwd
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trimtab.hooks.armed.stub import started

_PYTHON = re.compile(r"(?:lib)?python(\d+)\.(\d+)[a-z]*(?:$|\.so|[-.])")


class ProcessError(ValueError):
    """There is no such process, or it is not one to be contacted; the message says why and what to do."""


class ContactError(RuntimeError):
    """The process could not be asked, does not answer, or answers that it cannot; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process at the moment it was looked at."""

    pid: int
    inner_pid: int
    """Its number as it sees it itself, which in a container is another."""
    parent: int
    uid: int
    start: str
    """In ticks since boot."""
    command: str
    handles_sigurg: bool

    @property
    def owner(self) -> str:
        """Name of its user, or the number."""
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return str(self.uid)


def process(pid: int) -> Process:
    """The process `pid`.

    Raises:
        ProcessError: there is none, it has ended, `pid` is a thread's, or this machine has no `/proc`.
    """
    home = Path(f"/proc/{pid}")
    try:
        fields = dict(line.split(":", 1) for line in (home / "status").read_text().splitlines() if ":" in line)
        stat = (home / "stat").read_text()
        command = (home / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    except OSError as error:
        if not Path("/proc/self/stat").exists():
            raise ProcessError("processes are looked at in /proc, which only Linux has") from error
        raise ProcessError(f"pid: there is no process {pid}") from error
    leader = int(fields.get("Tgid", str(pid)))
    if leader != pid:
        raise ProcessError(f"pid: {pid} is a thread of process {leader}; give {leader}")
    if fields["State"].split()[0] in "ZX":
        raise ProcessError(f"pid: process {pid} has ended")
    caught = int(fields["SigCgt"], 16)
    return Process(
        pid=pid,
        inner_pid=int(fields.get("NSpid", str(pid)).split()[-1]),
        parent=int(fields["PPid"]),
        uid=int(fields["Uid"].split()[1]),
        start=started(stat),
        command=command,
        handles_sigurg=bool(caught >> (signal.SIGURG - 1) & 1),
    )


def owned(found: Process) -> Process:
    """`found`, where this user may contact it.

    Raises:
        ProcessError: it is another user's.
    """
    me = os.geteuid()
    if me not in (0, found.uid):
        raise ProcessError(
            f"pid: process {found.pid} belongs to user {found.owner}, and only that user and root may contact it; "
            f"this is user {me}"
        )
    return found


def armed_processes() -> Iterator[Process]:
    """Those of Python that handle SIGURG and that this user may contact, by number."""
    for pid in sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
        try:
            found = owned(process(pid))
        except ProcessError:
            continue
        if found.handles_sigurg and pid != os.getpid() and python_of(pid):
            yield found


def by_command(text: str) -> Process:
    """The armed process whose command line holds `text`; children of one with the same command line, as workers that
    load data are, do not count.

    Raises:
        ProcessError: there is none, or there are several, which are named.
    """
    found = {each.pid: each for each in armed_processes() if text in each.command}
    mine = _ancestors()
    tops = [
        each
        for each in found.values()
        if each.pid not in mine and (each.parent not in found or found[each.parent].command != each.command)
    ]
    if not tops:
        raise ProcessError(f"job: no armed process has {text!r} in its command line; `trimtab arm --status` lists them")
    if len(tops) > 1:
        names = "; ".join(f"{each.pid} {each.command[:80]}" for each in tops)
        many = f"{len(tops)} armed processes have {text!r} in their command lines"
        raise ProcessError(f"job: {many} ({names}); give one by --pid")
    return tops[0]


def _ancestors() -> set[int]:
    """This process and those that it was started by, whose command lines hold what they were asked for."""
    found, pid = set(), os.getpid()
    while pid > 1:
        found.add(pid)
        try:
            pid = process(pid).parent
        except ProcessError:
            break
    return found


def python_of(pid: int) -> tuple[int, int] | None:
    """Version of the Python that process `pid` runs, by the files that it has mapped; None where they do not say, or
    may not be read."""
    home = Path(f"/proc/{pid}")
    try:
        names = [os.path.basename(os.readlink(home / "exe"))]
        with (home / "maps").open() as maps:
            names += {os.path.basename(line.rstrip().rpartition(" ")[2]) for line in maps if "libpython" in line}
    except OSError:
        return None
    for name in names:
        if match := _PYTHON.match(name):
            return int(match[1]), int(match[2])
    return None
