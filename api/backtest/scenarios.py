"""The labelled runs that detectors are scored on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from trimtab.api.backtest import faults
from trimtab.api.backtest.conditions import Fault, Setup


class Label(StrEnum):
    """What a run is, whatever an agent says of it."""

    HEALTHY = "healthy"
    """Nothing is wrong: any alert is a false one."""
    FAILING = "failing"
    """Something is wrong from its onset on: an alert is due."""
    EITHER = "either"
    """Unusual, and no harm by itself: alerts are counted, and count neither way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A kind of run, of which there is one for each seed and onset."""

    name: str
    title: str
    label: Label
    setup: Setup = field(default_factory=Setup)
    fault: Fault = faults.nothing
    bar: int | None = None
    """Steps from the onset within which a failing one is to be seen; None where nothing was promised."""
    once: bool = False
    """The fault lasts for one step: what fires in the ten steps after the first alert is counted as well."""


LEVELS = {"": Setup(), " at entropy 2": Setup(entropy=2.0)}
TENSORS = ("rollout_logprobs", "old_logprobs", "train_logprobs", "entropy", "advantages")
SCALARS = ("loss", "grad_norm")
KINDS = {"NaN": math.nan, "+inf": math.inf, "-inf": -math.inf}


def _healthy() -> list[Scenario]:
    scenarios = []
    for level, setup in LEVELS.items():
        scenarios += [
            Scenario(name=f"healthy{level}", title=f"nothing happens{level}", label=Label.HEALTHY, setup=setup),
            Scenario(
                name=f"learning{level}",
                title=f"success 0.5 to 0.9, entropy to 30 % over 800 steps{level}",
                label=Label.HEALTHY,
                setup=setup,
                fault=faults.learning(0.9, 0.3, 800),
            ),
        ]
    return [
        *scenarios,
        Scenario(
            name="passes",
            title="four updates on the same rollouts",
            label=Label.HEALTHY,
            setup=Setup(passes=4),
        ),
        Scenario(
            name="garbage batches",
            title="one batch in 150 is garbage",
            label=Label.HEALTHY,
            fault=faults.garbage_batches(150),
        ),
        Scenario(
            name="resume",
            title="starts again, 10 steps back, ratios twice as wide at first",
            label=Label.HEALTHY,
            fault=faults.resume(10, 1.0),
        ),
        Scenario(
            name="bursts",
            title="15 % of the ratios wide for 3 steps in 100",
            label=Label.EITHER,
            fault=faults.bursts(0.15, 3, 100),
        ),
        Scenario(
            name="longer answers",
            title="lengths 0.6 to 0.9, wrong ones 0.1 longer, over 500 steps",
            label=Label.EITHER,
            fault=faults.longer_answers(0.9, 0.1, 500),
        ),
    ]


def _drifts() -> list[Scenario]:
    bars = {0.2: 5, 0.1: None, 0.05: 10, 0.02: 10}
    scenarios = []
    for size, bar in bars.items():
        named = f"tail -{size:g}"
        title = f"lowest 5 % of A < 0 by -{size:g}"
        scenarios += [
            Scenario(name=named, title=title, label=Label.FAILING, fault=faults.tail(size), bar=bar),
            Scenario(
                name=f"{named} ramp",
                title=f"{title}, over 200 steps",
                label=Label.FAILING,
                fault=faults.tail(size, 200),
                bar=15 if size == 0.2 else None,
            ),
        ]
    shifts = {
        "negative -0.005": (faults.bulk(-0.005), 12),
        "negative -0.2": (faults.bulk(-0.2), 5),
        "negative +0.2": (faults.bulk(0.2), None),
        "positive -0.005": (faults.bulk(0.0, -0.005), None),
        "positive -0.2": (faults.bulk(0.0, -0.2), None),
        "positive +0.2": (faults.bulk(0.0, 0.2), None),
        "both -0.2": (faults.bulk(-0.2, -0.2), None),
    }
    for name, (fault, bar) in shifts.items():
        scenarios.append(
            Scenario(name=name, title=f"every ratio of the sign, {name}", label=Label.FAILING, fault=fault, bar=bar)
        )
    return scenarios


def _levels() -> list[Scenario]:
    scenarios = []
    for level, setup in LEVELS.items():
        for name, factor, bar in (("entropy x3", 3.0, 30), ("entropy to 10 %", 0.1, 40)):
            scenarios.append(
                Scenario(
                    name=f"{name}{level}",
                    title=f"{name} over 200 steps{level}",
                    label=Label.FAILING,
                    setup=setup,
                    fault=faults.entropy(factor, 200),
                    bar=bar,
                )
            )
    return [
        *scenarios,
        Scenario(
            name="reward collapse",
            title="success 0.5 to 0.01 over 100 steps",
            label=Label.FAILING,
            fault=faults.reward(0.01, 100),
            bar=60,
        ),
    ]


def _poisons() -> list[Scenario]:
    return [
        Scenario(
            name=f"{kind} in {name}",
            title=f"one {kind} in {name}, in one step",
            label=Label.FAILING,
            fault=faults.poison(name, value),
            bar=0,
            once=True,
        )
        for name in (*TENSORS, *SCALARS)
        for kind, value in KINDS.items()
    ]


SCENARIOS: dict[str, Scenario] = {one.name: one for one in (*_healthy(), *_drifts(), *_levels(), *_poisons())}
"""Every scenario by name, in the order of the table."""
