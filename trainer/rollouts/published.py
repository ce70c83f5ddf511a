"""The weights that a run has published for sampling, as far back as anything may still need them."""

from __future__ import annotations

import math

from trimtab.trainer.rollouts.sampler import Weights


class Published:
    """Whole copies of the weights by version, which is the step that they were published before.

    Args:
        every: steps between two publications.
        age: steps for which a version may still be sampled with, and so be asked for.

    >>> published = Published(every=1, age=1)
    >>> for version in range(4):
    ...     published.add(version, {})
    >>> published.versions, published.before(2)
    ((2, 3), 2)
    """

    def __init__(self, *, every: int, age: int) -> None:
        self.every = every
        self._age = age
        self._weights: dict[int, Weights] = {}

    @property
    def versions(self) -> tuple[int, ...]:
        """Those that are kept, oldest first."""
        return tuple(self._weights)

    @property
    def newest(self) -> int:
        """The newest version."""
        return self.versions[-1]

    def due(self, step: int, most: float = math.inf) -> bool:
        """Whether weights are published before `step`, which may sample with none that are more than `most` versions
        older."""
        return step % self.every == 0 or not self._weights or step - self.newest > most

    def add(self, version: int, weights: Weights) -> None:
        """Publish `weights`, and let go of what is too old to be sampled with from now on."""
        self._weights[version] = weights
        oldest = self.before(version - self._age)
        self._weights = {kept: copy for kept, copy in self._weights.items() if kept >= oldest}

    def before(self, step: int) -> int:
        """The newest version of `step` or earlier; the oldest that there is, where all are later."""
        return max((version for version in self._weights if version <= step), default=self.versions[0])

    def aged(self, step: int, lag: int, most: float) -> int:
        """The newest version that is at least `lag` older than `step`; where that is more than `most` older, the
        oldest that is not, or the newest that there is."""
        version = self.before(step - lag)
        if step - version <= most:
            return version
        return min((version for version in self._weights if step - version <= most), default=self.newest)

    def __getitem__(self, version: int) -> Weights:
        return self._weights[version]

    def state(self) -> dict[int, Weights]:
        """For a checkpoint."""
        return dict(self._weights)

    def restore(self, state: dict[int, Weights]) -> None:
        """Take up what a checkpoint recorded."""
        self._weights = dict(state)
