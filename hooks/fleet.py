"""The driver's end of workers that measure: what they have measured is the sum that it reports.

The workers take part in no collective, so that none of them can wait for another. At the end of a step the driver asks
all of them, and reads the answers at the end of the next one, when they have long been there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.accumulate import Drained
from trimtab.hooks.duty import MAX_FAILING_STEPS
from trimtab.hooks.layout import SIZE
from trimtab.hooks.meter import take_from
from trimtab.hooks.told import BLOCK, Told

READ_SECONDS = 2.0
"""For how long an answer that should have been there for a step is waited for."""


class Caller(Protocol):
    """Calls functions inside the workers."""

    def submit(self, function: Callable[[Any], Any]) -> Sequence[Any]:
        """Start `function(worker)` in each of them, behind what they are doing, and return at once."""
        ...

    def ready(self, pending: Sequence[Any]) -> bool:
        """Whether all of them have answered."""
        ...

    def gather(self, pending: Sequence[Any], seconds: float) -> list[Any]:
        """Their answers; raises where one is not there in time, or failed."""
        ...


class RayCaller:
    """Workers that are Ray actors.

    Args:
        handles: gives their handles, asked anew each time since a trainer may make them late.
    """

    def __init__(self, handles: Callable[[], Sequence[Any]]) -> None:
        self._handles = handles

    def submit(self, function: Callable[[Any], Any]) -> Sequence[Any]:
        """See `Caller`."""
        return [handle.__ray_call__.remote(function) for handle in self._handles()]

    def ready(self, pending: Sequence[Any]) -> bool:
        """See `Caller`."""
        import ray

        return len(ray.wait(list(pending), num_returns=len(pending), timeout=0)[0]) == len(pending)

    def gather(self, pending: Sequence[Any], seconds: float) -> list[Any]:
        """See `Caller`."""
        import ray

        return list(ray.get(list(pending), timeout=seconds))


class Fleet:
    """A `Collective` of the driver alone, whose sum is of its workers.

    A step whose answers cannot be had is lost; the third in a row is told as a worker that has stopped.
    """

    rank, size, late = 0, 1, 1

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._missed = 0

    def sum(self, host: NDArray[np.float64], device: Any = None) -> Drained:
        """What the driver tells, and what the workers have measured; see `Collective`."""
        del device  # the driver measures nothing
        if len(host) != SIZE + BLOCK:
            return Drained(lambda: True, lambda: host)
        pending = self._caller.submit(take_from)

        def read() -> NDArray[np.float64]:
            try:
                vectors = self._caller.gather(pending, READ_SECONDS)
            except Exception:
                self._missed += 1
                if self._missed < MAX_FAILING_STEPS:
                    raise
                host[SIZE:] += Told(stopped=1).block()
                return host
            self._missed = 0
            total = np.sum([host, *vectors], axis=0)
            if vectors:
                total[SIZE:] -= Told().block()  # it is no rank of them
            return np.asarray(total)

        return Drained(lambda: self._caller.ready(pending), read)
