"""Sampling for several processes that train together, all of which learn from the same experience.

The embedded sampler is on every process, whole, and each samples its share of the prompts. Any other engine, and one
that runs ahead, is the first process's alone: a serving engine has processes of its own to spread over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from trimtab.hooks.contract import TensorContract
from trimtab.hooks.controls import Controls
from trimtab.trainer import rows
from trimtab.trainer.config import ConfigError
from trimtab.trainer.experience import Experience
from trimtab.trainer.rollouts.published import Published
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import Arrivals, Sampler, SamplerError, Update
from trimtab.trainer.rollouts.supply import Supply
from trimtab.trainer.rollouts.torch_sampler import TorchSampler
from trimtab.trainer.tasks.task import Prompts
from trimtab.trainer.world import World

T = TypeVar("T")


class SharedTorchSampler(TorchSampler):
    """A `TorchSampler` that samples its process's share of the prompts and gives the responses to all of them.

    They are the tokens that one process would have sampled: each draws the random numbers of all rows and takes its
    own, and goes on drawing until the process with the longest response is done.
    """

    def __init__(self, model: nn.Module, *, world: World, end: int, pad: int) -> None:
        super().__init__(model, end=end, pad=pad)
        self._world = world
        self._rows = torch.zeros(0, dtype=torch.long)
        self._count = self._draws = 0

    @override
    def generate(
        self,
        prompts: Prompts,
        length: int,
        *,
        samples: int = 1,
        head: int,
        temperature: float,
        generator: torch.Generator,
        arrivals: Arrivals | None = None,
    ) -> Rollout:
        mine = self._world.share(len(prompts.tokens))
        self._rows = (mine[:, None] * samples + torch.arange(samples)).flatten()
        self._count, self._draws = len(prompts.tokens) * samples, 0
        part = super().generate(
            prompts.rows(mine),
            length,
            samples=samples,
            head=head,
            temperature=temperature,
            generator=generator,
            arrivals=arrivals,
        )
        draws, parts = zip(*self._world.gathered((self._draws, part)), strict=True)
        while self._draws < max(draws):
            self._levels(len(self._rows), generator)
        joined: Rollout = rows.joined(parts)
        return replace(joined, prompts=prompts.repeated(samples))

    @override
    def _levels(self, count: int, generator: torch.Generator) -> Tensor:
        self._draws += 1
        return super()._levels(self._count, generator)[self._rows]


class FirstSampler:
    """A `Sampler` of the first process, whose responses all get.

    Args:
        factory: makes it, there.
        world: the processes.

    Raises:
        ConfigError, SamplerError: what the factory raised, on every process.
    """

    def __init__(self, factory: Callable[[], Sampler], world: World) -> None:
        self.inner: Sampler | None = None
        self._world = world
        self.version = -1
        _by_first(world, lambda: self._make(factory))

    def sync(self, update: Update) -> None:
        """Take over `update`; see `Sampler.sync`."""
        _by_first(self._world, lambda: self._inner.sync(update))
        self.version = update.version

    def generate(self, prompts: Prompts, length: int, **settings: Any) -> Rollout:
        """Sample responses; see `Sampler.generate`."""
        return _by_first(self._world, lambda: self._inner.generate(prompts, length, **settings))

    def contract(self) -> dict[str, TensorContract]:
        """What each weight is computed in."""
        return _by_first(self._world, lambda: self._inner.contract())

    def close(self) -> None:
        """End the engine."""
        if self.inner is not None:
            self.inner.close()

    @property
    def _inner(self) -> Sampler:
        assert self.inner is not None  # only the first process looks
        return self.inner

    def _make(self, factory: Callable[[], Sampler]) -> None:
        self.inner = factory()


class FirstSupply:
    """A `Supply` of the first process, whose experience all get.

    Args:
        supply: the first process's; None on the others.
        world: the processes.
    """

    def __init__(self, supply: Supply | None, world: World) -> None:
        self._supply = supply
        self._world = world

    def next(self, step: int, published: Published, controls: Controls) -> Experience:
        """The experience of `step`."""

        def taken() -> Experience:
            assert self._supply is not None  # only the first process looks
            return self._supply.next(step, published, controls)

        return _by_first(self._world, taken)

    def state(self) -> dict[str, Any]:
        """For a checkpoint, which the first process writes."""
        return {} if self._supply is None else self._supply.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's `state`."""
        if self._supply is not None:
            self._supply.restore(state)

    def stop(self) -> None:
        """Sample no further ahead."""
        if self._supply is not None:
            self._supply.stop()


def _by_first(world: World, work: Callable[[], T]) -> T:
    """What `work` gives on the first process, on all of them, and what it raises, since the others wait for it."""
    outcome: tuple[T | None, Exception | None] = None, None
    raised: Exception | None = None
    if world.first:
        try:
            outcome = work(), None
        except (ConfigError, SamplerError) as error:
            outcome = None, error
        except Exception as error:
            raised = error
            outcome = None, SamplerError(f"{type(error).__name__}: {error} (on the first process)")
    value, failure = world.from_first(outcome)
    if failure is not None:
        raise raised or failure
    return value  # type: ignore[return-value]
