"""Sampling ahead: the bound on staleness holds whatever the speeds, and nothing that goes wrong is lost."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from torch import Tensor

from trimtab.hooks.controls import Controls
from trimtab.trainer.config import RunConfig
from trimtab.trainer.experience import Collector, Experience
from trimtab.trainer.quant import Recipe, convert
from trimtab.trainer.rollouts.ahead import Ahead
from trimtab.trainer.rollouts.published import Published
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import SyncError, Update
from trimtab.trainer.rollouts.supply import Synchronous
from trimtab.trainer.rollouts.torch_sampler import TorchSampler
from trimtab.trainer.tasks.running_sum import END, PAD, RunningSum
from trimtab.trainer.warm_start import build_decoder, warm_weights

CONTROLS = Controls(sampler_format="bf16")
STEPS = 10


class PacedSampler(TorchSampler):
    """Takes its time for a batch, and logs what it was given."""

    def __init__(self, config: RunConfig, seconds: float = 0.0) -> None:
        model = build_decoder(config)
        convert(model, Recipe(name="test", format="bf16"))
        super().__init__(model, end=END, pad=PAD)
        self.seconds = seconds
        self.synced: list[tuple[int, str, str]] = []
        self.fails_at = -1
        self.batches = 0
        self.endless = 0
        """The batch that goes on asking between tokens, and never ends by itself."""
        self.asked = threading.Event()

    def sync(self, update: Update) -> None:
        if update.version == self.fails_at:
            raise SyncError(f"sampler: version {update.version} broke off")
        self.synced.append(update.key)
        super().sync(update)

    def generate(self, *args: Any, **kwargs: Any) -> Rollout:
        self.batches += 1
        time.sleep(self.seconds)
        while self.batches == self.endless:
            kwargs["arrivals"]()
            self.asked.set()
            time.sleep(0.001)
        return super().generate(*args, **kwargs)


def ahead_of(config: RunConfig, sampler: TorchSampler, staleness: int, *, in_flight: bool = False) -> Ahead:
    collector = Collector(config.rollout, RunningSum(digits=3), sampler)
    return Ahead(collector, sampler, max_staleness=staleness, in_flight=in_flight, steps=STEPS, seed=0)


def driven(config: RunConfig, supply: Ahead, staleness: int, steps: int, every: int, seconds: float) -> list[list[int]]:
    """The versions in each step's experience, for a trainer that takes `seconds` a step."""
    published, weights, seen = Published(every=every, age=staleness), warm_weights(config), []
    for step in range(steps):
        if published.due(step):
            published.add(step, weights)
        experience = supply.next(step, published, CONTROLS)
        seen.append(sorted(set(experience.rollout.versions.flatten().tolist())))
        time.sleep(seconds)
    supply.stop()
    return seen


@pytest.mark.parametrize("in_flight", [False, True])
@pytest.mark.parametrize(("trainer", "sampler"), [(0.0, 0.02), (0.02, 0.0)])
@pytest.mark.parametrize(("staleness", "every"), [(0, 1), (1, 1), (2, 3), (4, 2)])
def test_no_token_is_staler_than_allowed(
    tiny: RunConfig, staleness: int, every: int, trainer: float, sampler: float, in_flight: bool
) -> None:
    supply = ahead_of(tiny, PacedSampler(tiny, sampler), staleness, in_flight=in_flight)
    seen = driven(tiny, supply, staleness, 10, every, trainer)
    for step, versions in enumerate(seen):
        assert all(step - staleness <= version <= step and version % every == 0 for version in versions)
        assert in_flight or len(versions) == 1


def test_a_slow_trainer_is_sampled_for_as_far_ahead_as_allowed(tiny: RunConfig) -> None:
    supply = ahead_of(tiny, PacedSampler(tiny), 3)
    published, weights = Published(every=1, age=3), warm_weights(tiny)
    published.add(0, weights)
    supply.next(0, published, CONTROLS)
    for _ in range(400):
        if len(supply._batches) == 3:
            break
        time.sleep(0.01)
    versions = []
    for step in range(1, 4):
        published.add(step, weights)
        versions.append(int(supply.next(step, published, CONTROLS).rollout.versions[0, 0]))
    supply.stop()
    assert versions == [0, 0, 0]


def test_without_staleness_it_samples_what_the_deterministic_mode_does(tiny: RunConfig) -> None:
    def experiences(supply: Ahead | Synchronous) -> list[Experience]:
        published, weights, taken = Published(every=1, age=0), warm_weights(tiny), []
        for step in range(3):
            published.add(step, weights)
            taken.append(supply.next(step, published, CONTROLS))
        supply.stop()
        return taken

    sampler = PacedSampler(tiny)
    collector = Collector(tiny.rollout, RunningSum(digits=3), sampler)
    ahead = experiences(ahead_of(tiny, sampler, 0))
    alone = experiences(Synchronous(collector, sampler, lag=0, seed=0))
    for mine, theirs in zip(ahead, alone, strict=True):
        assert mine.rollout.responses.equal(theirs.rollout.responses)


def test_weights_are_handed_over_once_a_version_and_format(tiny: RunConfig) -> None:
    sampler = PacedSampler(tiny)
    supply = ahead_of(tiny, sampler, 2)
    driven(tiny, supply, 2, 9, 3, 0.02)
    assert len(sampler.synced) == len(set(sampler.synced))
    assert {version for version, _, _ in sampler.synced} <= {0, 3, 6}


def test_what_breaks_while_sampling_reaches_the_trainer(tiny: RunConfig) -> None:
    sampler = PacedSampler(tiny)
    sampler.fails_at = 2
    supply = ahead_of(tiny, sampler, 0)
    with pytest.raises(SyncError, match="version 2 broke off"):
        driven(tiny, supply, 0, 5, 1, 0.0)
    supply.stop()


def test_a_restore_goes_on_behind_the_last_batch_that_was_taken(tiny: RunConfig) -> None:
    supply = ahead_of(tiny, PacedSampler(tiny), 1)
    published, weights = Published(every=1, age=1), warm_weights(tiny)
    for step in range(2):
        published.add(step, weights)
        supply.next(step, published, CONTROLS)
    state = supply.state()
    published.add(2, weights)
    expected = supply.next(2, published, CONTROLS)
    supply.restore(state)
    again = supply.next(2, published, CONTROLS)
    supply.stop()
    assert again.rollout.prompts.tokens.equal(expected.rollout.prompts.tokens)
    assert again.rollout.responses.equal(expected.rollout.responses)


def test_it_leaves_no_thread_behind(tiny: RunConfig) -> None:
    supply = ahead_of(tiny, PacedSampler(tiny), 1)
    driven(tiny, supply, 1, 2, 1, 0.0)
    assert not [thread for thread in threading.enumerate() if thread.name == "trimtab-rollouts"]


@pytest.mark.parametrize("in_flight", [False, True])
def test_stopping_breaks_off_the_batch_under_way_and_goes_on_with_the_same(tiny: RunConfig, in_flight: bool) -> None:
    published = Published(every=1, age=1)
    published.add(0, warm_weights(tiny))

    def responses(sampler: PacedSampler) -> Iterator[Tensor]:
        supply = ahead_of(tiny, sampler, 1, in_flight=in_flight)
        for step in range(2):
            yield supply.next(step, published, CONTROLS).rollout.responses
            if sampler.endless:
                assert sampler.asked.wait(60)
                supply.stop()
        supply.stop()

    broken_off = PacedSampler(tiny)
    broken_off.endless = 2
    for mine, theirs in zip(responses(broken_off), responses(PacedSampler(tiny)), strict=True):
        assert mine.equal(theirs)
    assert broken_off.batches >= 3


def test_the_sampler_s_waiting_is_told(tiny: RunConfig) -> None:
    supply = ahead_of(tiny, PacedSampler(tiny), 0)
    driven(tiny, supply, 0, 3, 1, 0.1)
    assert supply.idle >= 0.2


def test_nothing_is_sampled_beyond_the_last_step(tiny: RunConfig) -> None:
    sampler = PacedSampler(tiny)
    driven(tiny, ahead_of(tiny, sampler, 4), 4, STEPS, 1, 0.02)
    assert sampler.batches == STEPS


def test_a_format_changes_between_batches_even_where_weights_change_within(tiny: RunConfig) -> None:
    """Weights of a newer version come into a batch with its own formats; the next batch has the new ones."""
    sampler = PacedSampler(tiny)
    supply = ahead_of(tiny, sampler, 2, in_flight=True)
    published, weights, engines = Published(every=1, age=2), warm_weights(tiny), []
    for step in range(STEPS):
        published.add(step, weights)
        number_format = "bf16" if step < 4 else "fp8-row"
        experience = supply.next(step, published, Controls(sampler_format=number_format))
        engines.append(experience.rollout.engine)
        time.sleep(0.01)
    supply.stop()
    formats = {}
    for version, number_format, _ in sampler.synced:
        formats.setdefault(version, []).append(number_format)
    # A version that came into a batch in BF16 is taken over once more, in the new format, before the next.
    assert all(formats[version] in (["bf16"], ["fp8-row"], ["bf16", "fp8-row"]) for version in formats)
    assert engines == sorted(engines)
    assert engines[-1] == "fp8-emulated"


@pytest.mark.parametrize("in_flight", [False, True])
def test_a_tighter_bound_holds_from_the_step_that_it_is_set_for(tiny: RunConfig, in_flight: bool) -> None:
    """What was sampled ahead under the old one is thrown away."""
    supply = ahead_of(tiny, PacedSampler(tiny), 3, in_flight=in_flight)
    published, weights, ages = Published(every=1, age=3), warm_weights(tiny), []
    for step in range(STEPS):
        published.add(step, weights)
        if step == 4:
            time.sleep(0.1)  # batches are there, of weights of long ago
        most = 1 if 4 <= step < 7 else 0 if step == 7 else math.inf
        experience = supply.next(step, published, Controls(sampler_format="bf16", max_staleness=most))
        ages.append(step - int(experience.rollout.versions.min()))
    supply.stop()
    assert max(ages) <= 3
    assert max(ages[4:7]) <= 1
    assert ages[7] == 0


def test_a_tighter_bound_samples_the_same_prompts_again(tiny: RunConfig) -> None:
    def prompts(bounds: list[float]) -> list[Tensor]:
        supply = ahead_of(tiny, PacedSampler(tiny), 2)
        published, weights, taken = Published(every=1, age=2), warm_weights(tiny), []
        for step, most in enumerate(bounds):
            published.add(step, weights)
            experience = supply.next(step, published, Controls(sampler_format="bf16", max_staleness=most))
            taken.append(experience.rollout.prompts.tokens)
        supply.stop()
        return taken

    tightened, alike = prompts([math.inf, math.inf, 0, 0, 0]), prompts([0] * 5)
    assert all(one.equal(other) for one, other in zip(tightened, alike, strict=True))
