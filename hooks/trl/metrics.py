"""What TRL measures once a generation or a step, read before its `log()` drops what is not a number.

`trainer._metrics["train"]` holds a list for each name, which is cleared whenever TRL logs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

STALENESS = "staleness"
"""In the asynchronous trainer a sample's age is one of them; for us it is a field of its own."""
NAMES = {
    "reward": "reward_mean",
    "reward_std": "reward_std",
    "frac_reward_zero_std": "zero_variance_fraction",
    "completions/mean_length": "length_mean",
    "completions/clipped_ratio": "truncated_fraction",
    "kl": "reference_kl",
    "sample/staleness_mean": STALENESS,
}
"""TRL's name -> ours, where both mean the same; `kl` is k3 of the reference weights, a mean over all tokens."""


class NewMetrics:
    """The values that have come since it was last asked.

    >>> new, metrics = NewMetrics(), {"reward": [0.5]}
    >>> new.scalars(metrics), new.scalars(metrics)
    ({'reward_mean': 0.5}, {})
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Any, int]] = {}

    def scalars(self, metrics: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """Each one's mean, not finite where any of them is not; of those that have come at all."""
        found = {}
        for theirs, ours in NAMES.items():
            values = metrics.get(theirs)
            if not values:
                continue
            held, count = self._seen.get(theirs, (None, 0))
            fresh = [float(value) for value in values[count if held is values else 0 :]]
            self._seen[theirs] = (values, len(values))
            if fresh:
                found[ours] = sum(fresh) / len(fresh)
        return found
