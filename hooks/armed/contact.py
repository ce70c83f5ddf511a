"""The command's side: a request is written where only the process and its user can, the process is woken, and its
answer is waited for."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trimtab
from trimtab.hooks.armed.process import Process, ProcessError, owned, process
from trimtab.hooks.armed.stub import folders, key, unsafe

POLL_SECONDS = 0.005


class ContactError(RuntimeError):
    """The process could not be asked, does not answer, or answers that it cannot; the message says why."""


def wake(found: Process) -> None:
    """Tell an armed process that there is a request.

    Raises:
        ContactError: it is not armed.
        ProcessError: it has ended.
    """
    if not found.handles_sigurg:
        raise ContactError(
            f"process {found.pid} is not armed: `trimtab arm` in its environment is for processes that start later; "
            "for this one there is --inject, which is a risk"
        )
    try:
        handle = os.pidfd_open(found.pid)
    except ProcessLookupError as error:
        raise ProcessError(f"pid: process {found.pid} has ended") from error
    try:
        if process(found.pid).start != found.start:
            raise ProcessError(f"pid: process {found.pid} has ended, and another has its number now")
        signal.pidfd_send_signal(handle, signal.SIGURG)
    finally:
        os.close(handle)


def ask(
    found: Process, request: dict[str, Any], *, timeout: float, waking: Callable[[Process], None] = wake
) -> dict[str, Any]:
    """What the process answers to `request`.

    Args:
        found: the process; it must be this user's, or this user root.
        request: for `trimtab.hooks.armed.activation`.
        timeout: seconds to wait for the answer.
        waking: what makes the process look at the request.

    Raises:
        ContactError: it does not answer in time, or that it cannot do what was asked.
        ProcessError: it is another user's, or has ended.
    """
    owned(found)
    folder = _folder(found)
    nonce = secrets.token_hex(8)
    site = str(Path(trimtab.__file__).resolve().parents[1])
    told = {"nonce": nonce, "by": os.getpid(), "site": site, **request}
    with _alone(folder, timeout):
        _sweep(folder, found)
        path = folder / key(found.inner_pid, found.start)
        asked, answered = path.with_suffix(".request"), path.with_suffix(".answer")
        _write(asked, json.dumps(told), found.uid)
        try:
            waking(found)
            answer = _awaited(found, asked, answered, nonce, timeout)
        finally:
            asked.unlink(missing_ok=True)
            answered.unlink(missing_ok=True)
    if "error" in answer:
        raise ContactError(f"process {found.pid} answers: {answer['error']}")
    return answer


def _awaited(found: Process, asked: Path, answered: Path, nonce: str, timeout: float) -> dict[str, Any]:
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        if answered.exists():
            answer: dict[str, Any] = json.loads(answered.read_bytes())
            if answer["nonce"] in (nonce, None):
                return answer
            answered.unlink()  # of a command that did not wait for it
        if not _there(key(found.pid, found.start)):
            raise ContactError(f"process {found.pid} ended before it answered")
        time.sleep(POLL_SECONDS)
    if asked.exists():
        raise ContactError(
            f"process {found.pid} has not looked at the request in {timeout:g} s: its main thread has been in one call "
            "of C code all the while, or the program has put a handler of its own in the place of trimtab's; nothing "
            "was changed"
        )
    raise ContactError(
        f"process {found.pid} has taken the request and not answered in {timeout:g} s; it goes on with it, and another "
        "request will say whether it is attached"
    )


def _folder(found: Process) -> Path:
    """The private folder of the process's user, as that process sees the file system; made where there is none.

    Raises:
        ContactError: there is one that others can use, or none can be made.
    """
    root = f"/proc/{found.pid}/root"
    try:
        own = os.stat(root)
        root = "" if os.path.samestat(own, os.stat("/")) else root
    except OSError:
        root = ""  # what it sees cannot be told; most likely what we see
    first, second = (Path(root + folder) for folder in folders(found.uid))
    folder = first if first.parent.is_dir() and not unsafe(str(first.parent), found.uid) else second
    try:
        folder.mkdir(mode=0o700)
        if os.geteuid() != found.uid:
            os.chown(folder, found.uid, -1)
    except FileExistsError:
        pass
    except OSError as error:
        raise ContactError(f"no folder for requests can be made: {error}") from error
    if why := unsafe(str(folder), found.uid):
        raise ContactError(f"requests are not safe there: {why}; remove it and ask again")
    return folder


@contextmanager
def _alone(folder: Path, timeout: float) -> Iterator[None]:
    """Keep other commands out, so that processes are asked one at a time."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    until = time.monotonic() + timeout
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= until:
                    raise ContactError(f"another command has been at work in {folder} for {timeout:g} s") from error
                time.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(handle)


def _sweep(folder: Path, found: Process) -> None:
    """Remove what commands that were killed have left: this process's files, and those of processes that ended."""
    for path in folder.iterdir():
        name = path.name.partition(".")[0]
        if name == key(found.inner_pid, found.start) or (found.pid == found.inner_pid and not _there(name)):
            path.unlink(missing_ok=True)


def _there(name: str) -> bool:
    """Whether the process lives that `key` gave this name."""
    pid, _, start = name.partition("-")
    try:
        return process(int(pid)).start == start
    except ValueError:
        return False


def _write(path: Path, text: str, uid: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if os.geteuid() != uid:
            os.fchown(handle, uid, -1)
        os.write(handle, text.encode())
    finally:
        os.close(handle)
