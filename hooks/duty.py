"""Whether a process measures and reports at all."""

from __future__ import annotations

import os

MAX_FAILING_STEPS = 3


class Duty:
    """Not in a fork, not while a person says so, and not once reporting has failed for good.

    >>> duty = Duty()
    >>> [duty.count(broke=True) for _ in range(MAX_FAILING_STEPS)], duty.failed
    ([False, False, True], True)
    """

    def __init__(self) -> None:
        self.off = False
        """A person has switched it off."""
        self.stopped = False
        """For good."""
        self._failing_steps = 0
        self._pid = os.getpid()

    @property
    def inert(self) -> bool:
        """Nothing is measured or sent now."""
        return self.stopped or self.off or self.forked

    @property
    def forked(self) -> bool:
        """True in a child process: its copy of the transport is the parent's, so it must keep still."""
        return os.getpid() != self._pid

    @property
    def failed(self) -> bool:
        """Reporting has failed in as many steps in a row as may be."""
        return self._failing_steps >= MAX_FAILING_STEPS

    def count(self, *, broke: bool) -> bool:
        """Count a step in which reporting failed, or did not; True for the one that makes it `failed`."""
        self._failing_steps = self._failing_steps + 1 if broke else 0
        return self._failing_steps == MAX_FAILING_STEPS
