"""What the armed process does when it is asked: it finds the trainer, calls the adapter of its framework, and keeps
what that gives until it is asked to take it away again.

Everything here runs in a thread beside training. The trainer is found on the stacks of the other threads, as the first
argument of a function that is running, and not among all objects: the garbage collector would stop the run for as long
as it takes to look at them all.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import trimtab
from trimtab.hooks.armed.frameworks import FRAMEWORKS, Framework
from trimtab.hooks.switches import switched_off

LOOK_SECONDS = 0.1
"""Between two looks for a trainer that does not train yet."""
ONLY_THE_FRAMES = 3
"""References to a dictionary that a frame holds, its reader, and the call that counts."""

_log = logging.getLogger("trimtab")


class ActivationError(RuntimeError):
    """What was asked cannot be done in this process; the message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attached:
    attachment: Any
    url: str
    job: str


_attached: list[_Attached] = []
"""At most one. A forked child has its own, which it is never asked for: it has another number."""


def carry_out(request: dict[str, Any]) -> dict[str, object]:
    """Do what `request["do"]` says, and tell what was done.

    Raises:
        ActivationError: it cannot be done. Whatever an adapter raises comes through as well.
    """
    doing = request.get("do")
    if doing not in DEEDS:
        raise ActivationError(f"do: {doing!r} is none of {', '.join(DEEDS)}; this process has trimtab {_version()}")
    return {**DEEDS[doing](request), "version": _version(), "pid": os.getpid()}


def _attach(request: dict[str, Any]) -> dict[str, object]:
    url, job, token = request["url"], request["job"], request.get("token")
    if switched_off():
        raise ActivationError("TRIMTAB_DISABLE or the file of TRIMTAB_KILL_FILE switches trimtab off in this process")
    if _attached and getattr(_attached[0].attachment, "attached", True):
        there = _attached[0]
        raise ActivationError(f"this process is attached to {there.url} as {there.job} already; detach it first")
    frameworks = FRAMEWORKS
    if request.get("class"):
        own = Framework(name=request["class"], classes=(request["class"],), attach=request["adapter"])
        frameworks = (own,)
    framework, trainer = _found(frameworks, float(request.get("wait", 0.0)))
    attach = _named(framework.attach)
    attachment = attach(trainer, url, job=job, token=token)
    _attached[:] = [_Attached(attachment=attachment, url=url, job=job)]
    _log.info("trimtab: attached to %s as %s, asked by process %s", url, job, request.get("by"))
    kind = type(trainer)
    return {"framework": framework.name, "trainer": f"{kind.__module__}.{kind.__qualname__}", "url": url, "job": job}


def _detach(request: dict[str, Any]) -> dict[str, object]:
    if not _attached:
        raise ActivationError("nothing was attached to this process while it ran")
    there = _attached[0]
    there.attachment.detach()
    _attached.clear()  # only then: what could not be taken away can be asked for again
    _log.info("trimtab: detached from %s, asked by process %s", there.url, request.get("by"))
    return {"url": there.url, "job": there.job}


DEEDS: dict[str, Callable[[dict[str, Any]], dict[str, object]]] = {"attach": _attach, "detach": _detach}
"""What a process can be asked to do."""


def _found(frameworks: tuple[Framework, ...], wait: float) -> tuple[Framework, Any]:
    """The first trainer on a stack, looked for until one is there or `wait` seconds are over."""
    until = time.monotonic() + wait
    while True:
        for framework in frameworks:
            for candidate in _selves(kinds := tuple(_loaded(framework))):
                if isinstance(candidate, kinds):
                    return framework, candidate
        if time.monotonic() >= until:
            known = ", ".join(name for framework in frameworks for name in framework.classes)
            raise ActivationError(
                f"no trainer is at work in this process: no thread of it runs a method of {known}; ask again once it "
                "trains, or name its class"
            )
        time.sleep(LOOK_SECONDS)


def _loaded(framework: Framework) -> Iterator[type]:
    """The framework's classes that this process has imported: what it has not imported it does not run."""
    for full in framework.classes:
        module, _, name = full.rpartition(".")
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type):
            yield kind


def _selves(kinds: tuple[type, ...]) -> Iterator[Any]:
    """First argument of every function that runs and is a method of `kinds` or of what they derive from, by its name;
    the main thread's first, from the innermost outwards."""
    owners = {base.__qualname__ for kind in kinds for base in kind.__mro__}
    stacks = sys._current_frames() if owners else {}
    main = threading.main_thread().ident
    stacks.pop(threading.get_ident(), None)
    for thread in sorted(stacks, key=lambda each: each != main):
        frame: FrameType | None = stacks[thread]
        while frame is not None:
            code = frame.f_code
            if code.co_argcount and code.co_qualname.rpartition(".")[0] in owners:
                yield _local(frame, code.co_varnames[0])
            frame = frame.f_back


def _local(frame: FrameType, name: str) -> Any:
    """A variable of a function that runs.

    Before Python 3.13 reading one copies all of them into a dictionary that stays with the frame, and would hold a
    step's tensors for as long as the function runs. So it is emptied, unless the function has taken it by `locals()`
    or is being traced, when its variables are read back from it.
    """
    variables = frame.f_locals
    value = variables.get(name)
    if sys.version_info < (3, 13) and frame.f_trace is None and sys.getrefcount(variables) <= ONLY_THE_FRAMES:
        variables.clear()
    return value


def _named(path: str) -> Any:
    """What a full name stands for."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ActivationError(f"{path} cannot be had in this process: {type(error).__name__}: {error}") from error


def _version() -> str:
    return trimtab.__version__
