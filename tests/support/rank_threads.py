"""A collective whose ranks are threads of one process; its sums may be read late, as those of a device are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from trimtab.hooks.accumulate import Drained

T = TypeVar("T")
TIMEOUT = 60.0
"""Seconds after which a rank that waits for the others gives up."""


class RankThread:
    """One rank."""

    def __init__(self, rank: int, late: int, given: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.size, self.late = rank, len(given), late
        self._given, self._barrier = given, barrier

    def sum(self, host: np.ndarray, device: Any = None) -> Drained:
        self._given[self.rank] = host if device is None else host + np.pad(device.numpy(), (0, len(host) - len(device)))
        self._barrier.wait()
        total = np.sum(self._given, axis=0)
        self._barrier.wait()
        return Drained(lambda: not self.late, lambda: total)

    def abort(self) -> None:
        self._barrier.abort()


def run_threads(size: int, program: Callable[..., T], *arguments: Any, late: int = 0) -> list[T]:
    """What `program(collective, *arguments)` gives on each of `size` ranks."""
    barrier, given = threading.Barrier(size, timeout=TIMEOUT), [None] * size
    ranks = [RankThread(rank, late, given, barrier) for rank in range(size)]

    def run(rank: RankThread) -> T:
        try:
            return program(rank, *arguments)
        except BaseException:
            rank.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return [future.result() for future in [pool.submit(run, rank) for rank in ranks]]
