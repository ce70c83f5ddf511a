"""No record that can be made, under any settings that can be made, stops the fold or is green on what is not finite."""

import math
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from agent_runs import CAPABLE, sign_sketch, step_summary
from agent_verdicts import CONFIG, final, reloaded, scalars_of, text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimtab.agent.advance import advance
from trimtab.agent.baselines import Level
from trimtab.agent.checks import ConfigError
from trimtab.agent.config import AgentConfig, with_settings
from trimtab.agent.detectors import DETECTORS
from trimtab.agent.reading import Reading
from trimtab.agent.run_state import RunState
from trimtab.agent.signals import read_all
from trimtab.agent.signals.step import Step
from trimtab.agent.state import Mode, State
from trimtab.agent.tracks import Track
from trimtab.hooks.controls import CHOICES, NUMERIC_BOUNDS, Capabilities, ClipBounds, ControlError, Controls
from trimtab.hooks.records import NonFinite, SignTotals, StepSummary
from trimtab.hooks.sketch import BINS, MAX_LOG_RATIO, SignSketch, Sketch, SketchError

# Records.

counts = st.one_of(st.integers(0, 400), st.integers(0, 2**53 - 1))
wild = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan]), st.floats())


@st.composite
def sign_sketches(draw: st.DrawFn) -> SignSketch:
    """Any bins beside any sums that they are accepted with, at the ends of what is allowed too."""
    bins = tuple(sorted(draw(st.sets(st.integers(0, BINS - 1), max_size=4))))
    n = tuple(draw(st.one_of(st.integers(1, 400), st.integers(1, 2**50))) for _ in bins)
    x = draw(st.one_of(st.sampled_from([-MAX_LOG_RATIO, 0.0, MAX_LOG_RATIO]), st.floats(-20, 20)))
    sums = [sum(n) * term for term in (x, x * x, math.exp(x), math.exp(2 * x), math.expm1(x) - x)]
    if draw(st.booleans()):
        sums[draw(st.integers(0, 4))] = draw(st.floats(allow_nan=False))
    try:
        return SignSketch(bins=bins, counts=n, sums=tuple(sums))
    except SketchError:
        return SignSketch()


sketches = st.builds(Sketch, negative=sign_sketches(), zero=sign_sketches(), positive=sign_sketches())
totals = st.builds(SignTotals, tokens=counts, advantage_abs=wild, entropy_tokens=counts, entropy=wild, entropy_sq=wild)
controls = st.builds(
    Controls,
    **{name: st.sampled_from(choices) for name, choices in CHOICES.items()},
    **{name: st.floats(bounds.low, bounds.high, allow_nan=False) for name, bounds in NUMERIC_BOUNDS.items()},
    centering=st.booleans(),
)
OVERRIDES: dict[str, Any] = {
    "centering": True,
    "clip_mode": "calibrated",
    "ratio_reference": "recomputed",
    "clip_high": 0.3,
}
overrides = st.sets(st.sampled_from(sorted(OVERRIDES))).map(lambda chosen: {name: OVERRIDES[name] for name in chosen})
SCALARS = ("reward_mean", "grad_norm", "loss", "length_mean", "garbage_fraction", "zero_variance_fraction")
fractions = st.one_of(st.floats(0, 1), st.sampled_from([math.nan, math.inf]))


@st.composite
def summaries(draw: st.DrawFn, step: int) -> StepSummary:
    names = draw(st.sets(st.sampled_from(SCALARS)))
    bounds = None
    if draw(st.booleans()):
        low, high = sorted(draw(st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False))))
        try:
            bounds = ClipBounds(low=low, high=high)
        except ControlError:
            bounds = None
    return StepSummary(
        job="run",
        attempt=draw(st.integers(1, 2)),
        step=step,
        sketches=draw(st.dictionaries(st.sampled_from(["update", "mismatch", "shadow", "other"]), sketches)),
        negative=draw(totals),
        zero=draw(totals),
        positive=draw(totals),
        scalars={name: draw(fractions if name.endswith("_fraction") else wild) for name in sorted(names)},
        nonfinite=draw(
            st.dictionaries(
                st.sampled_from(["entropy", "train_logprobs", "x"]), st.builds(NonFinite, nan=counts, posinf=counts)
            )
        ),
        staleness=draw(st.one_of(st.none(), st.floats(0))),
        applied=draw(controls),
        generation=draw(st.one_of(st.integers(0, 3), st.integers(0, 2**53 - 1))),
        overrides=draw(overrides),
        clip_bounds=bounds,
        capabilities=draw(st.sampled_from([CAPABLE, Capabilities(controls={})])),
        refusals=tuple(draw(st.lists(st.one_of(st.text(), st.just("centering: not now")), max_size=2))),
    )


# Settings.


def leaves(node: Any, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in fields(node):
        value = getattr(node, each.name)
        found |= leaves(value, f"{prefix}{each.name}.") if is_dataclass(value) else {prefix + each.name: value}
    return found


NUMBERS = {name: value for name, value in leaves(AgentConfig()).items() if type(value) in (int, float)}
extremes = st.sampled_from([0.0, 5e-324, 1e-9, 0.01, 0.5, 0.999, 1.0, 1.5, 2.0, 10.0, 50.0, 1000.0, 1e6])


@st.composite
def configs(draw: st.DrawFn) -> AgentConfig:
    """Any leaf at the ends of what it accepts; short windows, so that something is judged."""
    config = with_settings(AgentConfig(mode=draw(st.sampled_from(list(Mode)))), {"window": 2, "baseline.warmup": 10})
    for name in draw(st.lists(st.sampled_from(sorted(NUMBERS)), max_size=6)):
        value = draw(extremes)
        try:
            config = with_settings(config, {name: int(value) if isinstance(NUMBERS[name], int) else value})
        except ConfigError:
            continue
    return config


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(config=configs(), data=st.data())
def test_nothing_that_can_be_made_stops_the_fold(config: AgentConfig, data: st.DataObject) -> None:
    state = RunState.initial("run", config.mode)
    distinct = [data.draw(summaries(step)) for step in range(data.draw(st.integers(1, 3)))]
    for step in range(data.draw(st.integers(1, 16))):
        state = advance(config, state, replace(distinct[step % len(distinct)], step=step)).state
    assert text(reloaded(state)) == text(state)


# What is not finite is never green.


class Asked(Reading):
    """A reading that remembers which signals were looked at."""

    names: set[str] = set()  # noqa: RUF012

    def value(self, name: str) -> float | None:
        self.names.add(name)
        return super().value(name)

    def mean(self, name: str, *, max_age: int | None = None) -> float | None:
        self.names.add(name)
        return super().mean(name, max_age=max_age)


def healthy(*, shadow: bool, bounds: ClipBounds | None = None) -> Reading:
    """A reading on which every detector has all that it looks at."""
    rng = np.random.default_rng(0)
    parts: dict[str, Any] = {
        name: (rng.normal(0, 0.05, 500), rng.normal(0, 0.05, 500)) for name in ("update", "mismatch", "shadow")
    }
    if not shadow:
        del parts["shadow"]
    scalars = {"reward_mean": 0.5, "garbage_fraction": 0.01, "zero_variance_fraction": 0.1, "retained_fraction": 1.0}
    record = replace(step_summary(0, entropy=0.4, scalars=scalars, **parts), clip_bounds=bounds)
    tracks = {name: Track() for name in read_all(record)}
    for _ in range(40):
        tracks = {n: tracks[n].learnt(CONFIG.baseline).seen(v, CONFIG.window) for n, v in read_all(record).items()}
    past = {"mismatch_std": Level(location=0.05, scale=0.01), "reward_mean": Level(location=0.5, scale=0.05)}
    return Reading(step=Step(record), tracks=tracks, window=CONFIG.window, past=past, steps=1)


WARM = 80
"""Steps after which every detector has the memory that it judges by."""
DECLARED = with_settings(CONFIG, {"detectors.invariant.expected_exact": True, "detectors.invariant.tolerance": 1.0})
"""With all that a job can declare of itself."""
READINGS = {
    "twin": healthy(shadow=True),
    "moved": healthy(shadow=True, bounds=ClipBounds(low=-1.2, high=1.2)),
    "baseline": healthy(shadow=False),
}
UNSEEN = {("clipping", "moved"), ("clipping", "baseline"), *(("vanished", which) for which in READINGS)}
"""Detectors to which a reading shows nothing: what precision clips is told by the twin, under nominal bounds; and
no log was read."""


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", READINGS)
@pytest.mark.parametrize("name", DETECTORS)
def test_no_detector_is_green_on_a_signal_that_is_not_finite(name: str, which: str, value: float) -> None:
    reading, config = READINGS[which], getattr(DECLARED.detectors, name)
    memory = DETECTORS[name]
    for _ in range(WARM):
        memory, finding = memory.update(config, reading)
    if (name, which) in UNSEEN:
        assert finding.state is State.NOT_OBSERVED
        return
    assert finding.state is State.OK
    Asked.names = set()
    memory.update(
        config,
        Asked(
            step=reading.step,
            tracks=reading.tracks,
            window=reading.window,
            past=reading.past,
            steps=reading.steps,
        ),
    )
    for signal in Asked.names:
        track = reading.tracks[signal]
        if not track.recent:
            continue
        broken = replace(track, recent=(*track.recent[1:], value))
        _, finding = memory.update(config, replace(reading, tracks={**reading.tracks, signal: broken}))
        assert finding.state is not State.OK, signal


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    ("detector", "signal"), [("reward", "reward_mean"), ("entropy", "entropy"), ("garbage", "garbage_fraction")]
)
def test_what_overflows_is_as_good_as_infinite(detector: str, signal: str, sign: float) -> None:
    series: dict[str, Any] = {"reward_mean": 0.5, "entropy": 0.4, "garbage_fraction": 0.01}
    huge = math.inf if signal.endswith("_fraction") else sign * 1e110
    series[signal] = [series[signal]] * 40 + [huge, -huge] * 2
    state = final(scalars_of(44, **series))
    assert state.verdicts[detector].state is State.INCONCLUSIVE
    for track in state.tracks.values():
        for level in (track.baseline.average, track.baseline.highest, track.baseline.lowest):
            assert level is None or (math.isfinite(level.location) and math.isfinite(level.scale))


def test_sketches_of_few_and_of_extreme_ratios_are_judged() -> None:
    ends = [sign_sketch([x] * 200) for x in (-1e4, 1e4, 0.0)]
    for negative in ends:
        for positive in ends:
            made = Sketch(negative=negative, positive=positive)
            records = [
                replace(step_summary(i), sketches=dict.fromkeys(("update", "mismatch", "shadow"), made))
                for i in range(9)
            ]
            assert final(records).last_step == 8
