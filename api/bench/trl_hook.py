"""What the attached adapter costs a TRL run: two of the same trainer take turns, one with it and one without.

The run is the one of `trimtab.api.bench.rescue` with its usual clip; the one that is attached reports to the agent's
service in a process of its own, over HTTP. Each has random numbers of its own, so both sample and train the very same
responses. A figure is of one optimizer step.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from trimtab.api.bench.rescue import UPDATES, USUAL_CLIP, trainer
from trimtab.api.bench.spread import Spread
from trimtab.api.bench.turns import turns
from trimtab.api.demo.perform import service

WARM_UP = 2
"""Generations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCost:
    """Of one optimizer step, with its share of a generation."""

    step_ms: Spread
    """Without the adapter, by the clock."""
    added_ms: Spread
    """Difference of the two of a pair, by the clock: of all that is done beside training too."""
    worked_ms: Spread
    """Difference in the processor time of the thread that trains: what the adapter does in it."""
    share: Spread
    """Of that in the step without it."""


def bench_trl_hook(generations: int, on_pair: Callable[[], None] = lambda: None) -> HookCost:
    """`generations` pairs; `on_pair` is called after each."""
    from trimtab.hooks.trl import attach

    torch.set_num_threads(1)
    count, order = generations + WARM_UP, random.Random(0)
    with tempfile.TemporaryDirectory() as name, service(Path(name) / "agent.db") as (url, _):
        made = [trainer(Path(name) / "out", clip=USUAL_CLIP, seed=0, generations=count) for _ in range(2)]
        attach(made[1], url, job="hook-cost", spool=None)
        both = [turns(each, count, UPDATES) for each in made]
        states = [torch.get_rng_state()] * 2
        pairs = []
        for _ in range(count):
            seconds: dict[int, tuple[float, float]] = {}
            for place in order.sample((0, 1), 2):  # in either order
                torch.set_rng_state(states[place])
                seconds[place] = next(both[place])
                states[place] = torch.get_rng_state()
            pairs.append((*seconds[0], *seconds[1]))
            on_pair()
        for each in both:  # lets its thread end
            next(each, None)
    pairs, ms = pairs[WARM_UP:], 1000 / UPDATES
    return HookCost(
        step_ms=Spread.of(ms * alone for alone, _, _, _ in pairs),
        added_ms=Spread.of(ms * (ridden - alone) for alone, _, ridden, _ in pairs),
        worked_ms=Spread.of(ms * (ridden - alone) for _, alone, _, ridden in pairs),
        share=Spread.of(ridden / alone - 1 for _, alone, _, ridden in pairs),
    )
