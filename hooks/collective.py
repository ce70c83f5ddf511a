"""What an emitter needs of a job of several processes: one sum a step, and every process's place in it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.accumulate import Drained


class Collective(Protocol):
    """The data-parallel processes of one job. Every one of them calls `sum` the same number of times, in the same
    order; one that does not leaves the others waiting, as with any collective.
    """

    @property
    def rank(self) -> int:
        """This process among them, from 0. Rank 0 alone reports, and hears from the agent."""
        ...

    @property
    def size(self) -> int:
        """How many they are."""
        ...

    @property
    def late(self) -> int:
        """Sums that are not waited for: 0 where `sum` has the result, 1 where it is read after the next one."""
        ...

    def sum(self, host: NDArray[np.float64], device: Any = None) -> Drained:
        """Start the sum, over the ranks, of `host` and of what `device` adds to its first elements.

        Args:
            host: float64 vector, of one length on all ranks. It is the collective's from here on.
            device: tensor of the process's device that is no longer than `host`, or None.
        """
        ...
