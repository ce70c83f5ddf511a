"""The command's side: a request is written where only the process and its user can, the process is woken, and its
answer is waited for."""

from __future__ import annotations

import json
import os
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trimtab
from trimtab.hooks.armed.private_folder import POLL_SECONDS, PrivateFolder, private_folder, there
from trimtab.hooks.armed.process import ContactError, Process, ProcessError, owned, process
from trimtab.hooks.armed.stub import key


def wake(found: Process) -> None:
    """Tell an armed process that there is a request.

    Raises:
        ContactError: it is not armed, or it cannot be signalled.
        ProcessError: it has ended.
    """
    if not found.handles_sigurg:
        raise ContactError(
            f"process {found.pid} is not armed: `trimtab arm` in its environment is for processes that start later; "
            "for this one there is --inject, which is a risk"
        )
    try:
        handle = os.pidfd_open(found.pid)
        try:
            if process(found.pid).start != found.start:
                raise ProcessError(f"pid: process {found.pid} has ended, and another has its number now")
            signal.pidfd_send_signal(handle, signal.SIGURG)
        finally:
            os.close(handle)
    except ProcessLookupError as error:
        raise ProcessError(f"pid: process {found.pid} has ended") from error
    except OSError as error:
        raise ContactError(
            f"process {found.pid} cannot be signalled ({error.strerror}); run this as its user, where it runs"
        ) from error


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
    nonce = secrets.token_hex(8)
    site = str(Path(trimtab.__file__).resolve().parents[1])
    told = {"nonce": nonce, "by": os.getpid(), "site": site, **request}
    name = key(found.inner_pid, found.start)
    with private_folder(found) as folder, folder.alone(timeout):
        folder.sweep(found)
        folder.write(f"{name}.request", json.dumps(told))
        try:
            waking(found)
            answer = _awaited(found, folder, name, nonce, timeout)
        finally:
            folder.remove(f"{name}.request")
            folder.remove(f"{name}.answer")
    if "error" in answer:
        raise ContactError(f"process {found.pid} answers: {' '.join(str(answer['error']).split())}")
    return answer


def _awaited(found: Process, folder: PrivateFolder, name: str, nonce: str, timeout: float) -> dict[str, Any]:
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        data = folder.read(f"{name}.answer")
        if data is not None:
            answer = _answer(found, data)
            if answer["nonce"] in (nonce, None):
                return answer
            folder.remove(f"{name}.answer")  # of a command that did not wait for it
        if not there(key(found.pid, found.start)):
            raise ContactError(f"process {found.pid} ended before it answered")
        time.sleep(POLL_SECONDS)
    if folder.has(f"{name}.request"):
        raise ContactError(
            f"process {found.pid} has not looked at the request in {timeout:g} s: its main thread has been in one call "
            "of C code all the while, or the program has put a handler of its own in the place of trimtab's; nothing "
            "was changed"
        )
    raise ContactError(
        f"process {found.pid} has taken the request and not answered in {timeout:g} s; it goes on with it, and another "
        "request will say whether it is attached"
    )


def _answer(found: Process, data: bytes) -> dict[str, Any]:
    """The answer that a file holds. Raises `ContactError` where it is none."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or "nonce" not in answer:
        raise ContactError(
            f"process {found.pid} gives an answer that is none; whether it did what was asked is not known: ask again"
        )
    return answer
