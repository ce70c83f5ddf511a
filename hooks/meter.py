"""What a worker process of somebody else's trainer measures, until the process that drives it asks.

For trainers whose loss runs in other processes than their loop. The workers have no connection, no controls of their
own and nothing to wait for: what they are to obey comes with each batch, and what they have measured is fetched.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.accumulate import Accumulator
from trimtab.hooks.controls import RatioReference
from trimtab.hooks.duty import MAX_FAILING_STEPS
from trimtab.hooks.guard import Guard
from trimtab.hooks.layout import SIZE
from trimtab.hooks.records import TokenBatch
from trimtab.hooks.told import BLOCK, Told

_log = logging.getLogger("trimtab")


class Meter:
    """One process's measurements since they were last taken.

    Errors are swallowed. Three takes in a row with one, and it measures no more, which is said once and told to whoever
    takes.
    """

    def __init__(self) -> None:
        self.broken = False
        """It measures no more."""
        self._accumulator = Accumulator()
        self._guard = Guard("worker")
        self._strikes = 0
        self._seen = 0
        self._pid = os.getpid()

    @property
    def failures(self) -> int:
        """Errors swallowed so far."""
        return self._guard.failures

    def observe(self, reference: RatioReference = "recomputed", **tensors: Any) -> None:
        """Add the tensors of one loss call, the fields of `TokenBatch`; `reference` is the denominator of its ratio."""
        if not self.broken and self._pid == os.getpid():
            with self._guard.swallowing("observe"):
                self._accumulator.add(TokenBatch(**tensors), reference)

    def swallow(self, doing: str, error: BaseException) -> None:
        """Count an error of the adapter."""
        self._guard.swallow(doing, error)

    def take(self) -> NDArray[np.float64]:
        """[SIZE + BLOCK] what was measured since the last call, as one rank tells it to another.

        Tensors on a device are waited for: no step is running when the driver asks.
        """
        vector = np.zeros(SIZE + BLOCK)
        host, device = self._accumulator.take()
        vector[:SIZE] = host if device is None else host + device.cpu().numpy()
        failed = self.failures > self._seen
        self._seen = self.failures
        self._strikes = self._strikes + 1 if failed else 0
        if self._strikes >= MAX_FAILING_STEPS and not self.broken:
            self.broken = True
            _log.error("trimtab: this worker measures no more: its adapter failed in %d steps in a row", self._strikes)
        vector[SIZE:] = Told(failed=int(failed), stopped=int(self.broken)).block()
        return vector


METER = Meter()
"""This process's."""


def take_from(_worker: Any) -> NDArray[np.float64]:
    """What this worker has measured. Called in it, by the driver, with the worker object itself."""
    return METER.take()
