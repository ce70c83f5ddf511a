"""Where a step's experience comes from: sampled when it is asked for, or ahead of it by a bounded number of versions.

Weights have a version, the step that they were published before; the staleness of a token is the step that trains on it
less the version that sampled it.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

from trimtab.hooks.controls import Controls
from trimtab.trainer.experience import Collector, Experience
from trimtab.trainer.rollouts.published import Published
from trimtab.trainer.rollouts.sampler import Sampler, Update


class Supply(Protocol):
    """Gives each step its experience."""

    def next(self, step: int, published: Published, controls: Controls) -> Experience:
        """The experience of `step`, before which `published` got what is due.

        Raises:
            SamplerError: the sampler cannot sample.
        """
        ...

    def state(self) -> dict[str, Any]:
        """For a checkpoint: what the experience after the last one depends on."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's `state`; what was sampled ahead is thrown away."""
        ...

    def stop(self) -> None:
        """Sample no further ahead; whoever calls has the sampler alone until the next `next`."""
        ...


class Draws:
    """The randomness of rollouts: which prompts, and which tokens."""

    def __init__(self, seed: int) -> None:
        self.prompts = torch.Generator().manual_seed(seed)
        self.tokens = torch.Generator().manual_seed(seed + 1_000_003)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"prompts": self.prompts.get_state(), "tokens": self.tokens.get_state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's `state`."""
        self.prompts.set_state(state["prompts"])
        self.tokens.set_state(state["tokens"])


def update_for(version: int, published: Published, controls: Controls) -> Update:
    """What a sampler that is to sample with `version` under `controls` needs."""
    return Update(
        weights=published[version],
        version=version,
        number_format=controls.sampler_format,
        kv_format=controls.kv_format,
    )


class Synchronous:
    """Samples when a step asks, with weights of a fixed age: the deterministic mode.

    Args:
        collector: draws prompts and grades responses.
        sampler: the collector's.
        lag: age of the weights, steps, where `Controls.max_staleness` allows it; while the run is younger, its first
            weights.
        seed: of the randomness.
    """

    def __init__(self, collector: Collector, sampler: Sampler, *, lag: int, seed: int) -> None:
        self._collector = collector
        self._sampler = sampler
        self._lag = lag
        self._draws = Draws(seed)

    def next(self, step: int, published: Published, controls: Controls) -> Experience:
        """Sample now."""
        version = published.aged(step, self._lag, controls.max_staleness)
        self._sampler.sync(update_for(version, published, controls))
        return self._collector.collect(controls, self._draws.prompts, self._draws.tokens)

    def state(self) -> dict[str, Any]:
        """The generators."""
        return self._draws.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's `state`."""
        self._draws.restore(state)

    def stop(self) -> None:
        """Nothing is sampled ahead."""
