"""Work in processes of their own, as many at a time as there are cores.

A process that fails, or dies, takes nothing else with it. Children end with their parent, however it ends: none is left
to write into folders that the next start would use.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.25
_CONTEXT = multiprocessing.get_context("forkserver")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A function of a module, and what it is called with; both must survive pickling."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    log: Path
    """What it prints, and its traceback should it fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How one piece of work ended."""

    name: str
    seconds: float
    error: str = ""
    """One line; empty where it went well."""


def perform(
    works: Sequence[Work],
    workers: int,
    *,
    preload: str = "trimtab.trainer.run",
    on_start: Callable[[Work], None] = lambda _: None,
    on_end: Callable[[Ended], None] = lambda _: None,
    on_tick: Callable[[], None] = lambda: None,
) -> list[Ended]:
    """Do everything, `workers` at a time, and tell how each ended, in order of ending.

    `preload` names the module that the work is done by, and is imported once for all of it where no work was done
    before in this process. Whatever is raised here, an interrupt above all, stops what is still running first.
    """
    # Once, instead of in each of the processes, whose start would else be a tenth of a short run.
    _CONTEXT.set_forkserver_preload([preload])
    waiting, running, ended = list(reversed(works)), {}, []  # type: ignore[var-annotated]
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                work = waiting.pop()
                on_start(work)
                running[work.name] = _Running(work)
            wait([one.process.sentinel for one in running.values()], timeout=POLL_SECONDS)
            on_tick()
            for name, one in list(running.items()):
                if not one.process.is_alive():
                    del running[name]
                    ended.append(one.ended())
                    on_end(ended[-1])
    finally:
        for one in running.values():
            one.stop()
    return ended


class _Running:
    """One process at work."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.started = time.monotonic()
        self.errors, errors = _CONTEXT.Pipe(duplex=False)
        self.process: ForkServerProcess = _CONTEXT.Process(target=_child, args=(work, errors), name=work.name)
        self.process.start()
        errors.close()

    def ended(self) -> Ended:
        """What became of it; it has ended."""
        error = ""
        self.process.join()
        if self.process.exitcode:
            with contextlib.suppress(EOFError, OSError):
                error = self.errors.recv()
            error = error or _died(self.process.exitcode)
        self.errors.close()
        return Ended(name=self.work.name, seconds=time.monotonic() - self.started, error=error)

    def stop(self) -> None:
        """End it and wait until it has."""
        self.process.terminate()
        self.process.join()
        self.errors.close()


def _died(code: int) -> str:
    return f"the process was ended by {signal.Signals(-code).name}" if code < 0 else f"the process ended with {code}"


def _child(work: Work, errors: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the parent says who stops
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _print_into(work.log)
        work.function(*work.arguments)
    except Exception as error:
        errors.send(f"{type(error).__name__}: {error}")  # first: on a disk that is full, the log takes no more
        with contextlib.suppress(OSError):
            traceback.print_exc()
            sys.stderr.flush()
        raise SystemExit(1) from None


def _print_into(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def steps_done(folder: Path) -> int:
    """Lines in the step log of a run, which another process writes."""
    try:
        return (folder / "steps.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0
