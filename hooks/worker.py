"""A trainer's worker process, to which nobody can pass arguments: it attaches itself, as its environment says.

    TRIMTAB_URL       address of the agent, as `attach` takes it; without it nothing is attached
    TRIMTAB_JOB       name of the run
    TRIMTAB_ATTEMPT   its attempt; by default the time in seconds
    TRIMTAB_TOKEN     bearer token, where the agent asks for one

They are the same in every process of a job. A process attaches once, at its first step; where that fails, it says why
and trains on unwatched.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from trimtab.hooks.attach import attach
from trimtab.hooks.attachment import Attachment
from trimtab.hooks.emitter import CLOSE_SECONDS
from trimtab.hooks.knobs import Panel
from trimtab.hooks.sigterm import flush_at_sigterm

if TYPE_CHECKING:
    from trimtab.hooks.collective import Collective

URL, JOB, ATTEMPT = "TRIMTAB_URL", "TRIMTAB_JOB", "TRIMTAB_ATTEMPT"
JOIN_SECONDS = 60.0
"""For how long the ranks of a job wait for each other before none of them attaches."""
_POLL_SECONDS = 0.05
_MEETING = "trimtab/meeting"
_ROUNDS: Counter[str] = Counter()
"""Meetings of this process, by their place."""

T = TypeVar("T")

_log = logging.getLogger("trimtab")


class OncePerProcess(Generic[T]):
    """Something of which a process makes one, at the first call, and a fork of that process has none.

    >>> slot: OncePerProcess[list[int]] = OncePerProcess()
    >>> slot.get(lambda: [1]) is slot.get(lambda: [2])
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._value: T | None = None

    def get(self, make: Callable[[], T | None]) -> T | None:
        """It; None in a fork, and where `make` gave None, which is not called again."""
        if not self._pid:
            with self._lock:
                if not self._pid:
                    self._pid = os.getpid()
                    self._value = make()
        return self._value if self._pid == os.getpid() else None

    @property
    def tried(self) -> bool:
        """Whether `get` has been called."""
        return self._pid != 0

    def made(self) -> T | None:
        """The same without making it."""
        return self._value if self._pid == os.getpid() else None

    def clear(self) -> None:
        """Forget it, so that another is made."""
        self._pid, self._value = 0, None


def attach_worker(
    panel: Panel,
    *,
    undo: Callable[[], None] = lambda: None,
    collective: Callable[[], Collective | None] = lambda: None,
    url: str | None = None,
    job: str | None = None,
    **facts: Any,
) -> Attachment | None:
    """Attach this process as its environment says; None, with the reason logged, where it cannot be.

    Args:
        panel: the trainer's knobs.
        url: in the environment's place.
        job: likewise.
        undo: takes every wrapper off the trainer again.
        collective: makes what joins the processes of the job, where they report as one.
        facts: fields of `Capabilities` beside what the panel says.
    """
    url, job = url or os.environ.get(URL, ""), job or os.environ.get(JOB, "")
    if not url or not job:
        _log.warning("trimtab: not attached: set %s and %s in the environment of every worker", URL, JOB)
        return None
    attempt = os.environ.get(ATTEMPT)
    try:
        joined = collective()
        emitter = attach(
            url,
            job=job,
            attempt=int(attempt) if attempt else None,
            controls=panel.own(),
            capabilities=panel.capabilities(**facts),
            collective=joined,
        )
    except Exception as error:
        _log.error(
            "trimtab (job %s): not attached: %s: %s; training goes on unwatched", job, type(error).__name__, error
        )
        return None
    off = flush_at_sigterm(emitter.flush, CLOSE_SECONDS)

    def undo_all() -> None:
        off()
        undo()

    return Attachment(emitter, panel, undo_all)


def unwrap(owner: Any, name: str, ours: Any, before: Any = None) -> None:
    """Take `ours` off `owner.name` where it is still there; what somebody else has put there since stays.

    Args:
        owner: an object or a module.
        name: of its attribute.
        ours: what an adapter put there.
        before: what was there, where that was the owner's own and not of its class.
    """
    if vars(owner).get(name) is ours:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def torch_ranks(group: Any = None) -> Collective | None:
    """The ranks of a torch process group as one reporter; None where torch.distributed has one rank, or is not used.

    Called by all ranks of the job at the same point. They first meet in the store of the process group, since one that
    does not come would leave the others waiting in the first sum for as long as the group's timeout.

    Raises:
        RuntimeError: not all of them came; none of them may join then, and every one of them gets this error.
    """
    from torch import distributed as dist

    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size(group) < 2:
        return None
    _meet(dist.distributed_c10d._get_default_store(), dist.get_world_size(group), group)
    from trimtab.hooks.collective_torch import TorchCollective

    return TorchCollective(group)


def _meet(store: Any, size: int, group: Any, seconds: float = JOIN_SECONDS) -> None:
    """Return where `size` ranks have come, on all of them, or raise on all of them."""
    place = _MEETING if group is None else f"{_MEETING}/{getattr(group, 'group_name', '')}"
    # Every rank counts its meetings: what is left of an earlier one must not let anybody join in this one.
    _ROUNDS[place] += 1
    name = f"{place}/{_ROUNDS[place]}"
    store.add(name, 1)
    deadline = time.monotonic() + seconds
    while (here := store.add(name, 0)) < size and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    # Whoever writes first decides for all, so that no rank joins others that have given up.
    verdict = store.compare_set(f"{name}/verdict", "", "join" if here >= size else "leave")
    if verdict != b"join":
        raise RuntimeError(
            f"{here} of {size} ranks came within {seconds:g} s; trimtab and its environment variables must be on all"
        )


class _Watch:
    """Calls after every step of the first optimizer that steps."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._first: int | None = None

    def stepped(self, optimizer: Any) -> None:
        if self._first is None:
            self._first = id(optimizer)
        if self._first == id(optimizer):
            try:
                self._call()
            except Exception as error:  # it would come out of the trainer's optimizer.step()
                _forget(self)
                _log.error("trimtab: steps are not counted any more: %s: %s", type(error).__name__, error)


_WATCHES: list[_Watch] = []
_HOOKED: OncePerProcess[Any] = OncePerProcess()


def _stepped(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    for watch in tuple(_WATCHES):
        watch.stepped(optimizer)


def after_optimizer_steps(call: Callable[[], None]) -> Callable[[], None]:
    """Call after every step of the first torch optimizer that steps from now on, and return what ends that.

    It is for trainers without a hook of their own. On every rank of a job the same optimizer comes first. torch's hook
    is one a process and stays: torch may be going over its hooks when it is to be taken off, and does not bear that.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    _HOOKED.get(lambda: register_optimizer_step_post_hook(_stepped))
    watch = _Watch(call)
    _WATCHES.append(watch)

    return partial(_forget, watch)


def _forget(watch: _Watch) -> None:
    if watch in _WATCHES:
        _WATCHES.remove(watch)
