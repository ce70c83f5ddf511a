"""One contract for every detector, and exact verdicts for those of the inputs and of the signature."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from agent_runs import step_summary
from agent_verdicts import CONFIG, verdict

from trimtab.agent.advance import advance
from trimtab.agent.config import AgentConfig
from trimtab.agent.detectors import DETECTORS
from trimtab.agent.reading import Reading
from trimtab.agent.run_state import RunState
from trimtab.agent.signals import SIGNALS
from trimtab.agent.signals.step import Step
from trimtab.agent.state import State
from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.records import NonFinite, SignTotals, StepSummary

N = 2000


def spread_to(std: float, clip: float) -> tuple[np.ndarray, np.ndarray]:
    """Log-ratios whose positive clip fraction is `clip` and whose spread is about `std`."""
    rng = np.random.default_rng(0)
    negative = rng.normal(0, std, N)
    positive = np.where(np.arange(N) < clip * N, 0.5, -0.01)
    return negative, positive


def mismatched(std: float, clip: float, n: int = 6, **fields: Any) -> list[StepSummary]:
    rng = np.random.default_rng(1)
    gap = rng.normal(0, std, N), rng.normal(0, std, N)
    return [step_summary(i, update=spread_to(0.1, clip), mismatch=gap, **fields) for i in range(n)]


# The contract.


@pytest.mark.parametrize("name", DETECTORS)
def test_a_detector_is_a_value(name: str) -> None:
    detector = DETECTORS[name]
    reading = Reading(step=Step(StepSummary(job="run", attempt=1, step=0)), tracks={}, window=5)
    settings = getattr(CONFIG.detectors, name)
    first, second = detector.update(settings, reading), detector.update(settings, reading)
    assert first == second
    assert type(first[0]) is type(detector)
    assert hash(detector) == hash(DETECTORS[name])
    assert first[1].message


@pytest.mark.parametrize("name", sorted(set(DETECTORS) - {"nonfinite", "tokens", "learning"}))
def test_what_is_not_reported_is_not_observed(name: str) -> None:
    assert verdict(name, [step_summary(i) for i in range(40)]).state is State.NOT_OBSERVED


@pytest.mark.parametrize("name", DETECTORS)
def test_the_signals_of_a_detector_exist(name: str) -> None:
    assert set(DETECTORS[name].SIGNALS) <= set(SIGNALS)


@pytest.mark.parametrize("name", ["mismatch", "asymmetry", "entropy", "garbage", "reward"])
def test_the_first_steps_are_inconclusive(name: str) -> None:
    record = step_summary(
        0,
        update=spread_to(0.1, 0.01),
        mismatch=spread_to(0.1, 0.01),
        entropy=0.4,
        scalars={"reward_mean": 0.5, "garbage_fraction": 0.01},
    )
    assert verdict(name, [record]).state is State.INCONCLUSIVE


@pytest.mark.parametrize("module", sorted(set(DETECTORS)))
def test_every_docstring_states_what_to_expect(module: str) -> None:
    from importlib import import_module

    text = import_module(f"trimtab.agent.detectors.{module}").__doc__ or ""
    assert len(text) > 300
    assert any(word in text for word in ("alarm", "silent"))


# Non-finite values.


@pytest.mark.parametrize(
    ("tensor", "counts", "kind"),
    [
        ("rollout_logprobs", NonFinite(nan=1), "1 NaN"),
        ("old_logprobs", NonFinite(neginf=3), "3 -inf"),
        ("train_logprobs", NonFinite(posinf=2, nan=1), "1 NaN, 2 +inf"),
        ("advantages", NonFinite(posinf=1), "1 +inf"),
    ],
)
def test_one_live_non_finite_value_is_critical_in_its_step(tensor: str, counts: NonFinite, kind: str) -> None:
    found = verdict("nonfinite", [step_summary(0, nonfinite={tensor: counts})])
    assert found.state is State.CRITICAL
    assert found.message.startswith(f"{tensor}: {kind}")


@pytest.mark.parametrize(("value", "kind"), [(math.nan, "1 NaN"), (math.inf, "1 +inf"), (-math.inf, "1 -inf")])
@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_a_non_finite_scalar_is_critical(name: str, value: float, kind: str) -> None:
    found = verdict("nonfinite", [step_summary(0, scalars={name: value})])
    assert (found.state, found.message) == (State.CRITICAL, f"{name}: {kind}")


def test_the_root_is_the_earliest_in_the_order_of_dependency() -> None:
    record = step_summary(
        59,
        scalars={"loss": math.nan, "grad_norm": math.nan},
        nonfinite={"entropy": NonFinite(nan=5), "old_logprobs": NonFinite(nan=7), "train_logprobs": NonFinite(nan=9)},
    )
    found = verdict("nonfinite", [record])
    assert found.message == "old_logprobs: 7 NaN; then entropy, train_logprobs, loss, grad_norm"
    assert found.evidence["old_logprobs.NaN"] == 7.0


def test_masked_values_say_nothing() -> None:
    assert verdict("nonfinite", [step_summary(0, nonfinite={"advantages": NonFinite(masked=9)})]).state is State.OK


def test_an_entropy_that_is_not_finite_blinds_a_diagnostic_only() -> None:
    assert verdict("nonfinite", [step_summary(0, nonfinite={"entropy": NonFinite(nan=9)})]).state is State.WARN


# No tokens.


def test_one_empty_step_is_inconclusive_and_two_are_critical() -> None:
    empty = [step_summary(i, tokens=0) for i in range(3)]
    assert [verdict("tokens", empty[: n + 1]).state for n in range(3)] == [
        State.INCONCLUSIVE,
        State.CRITICAL,
        State.CRITICAL,
    ]
    assert verdict("tokens", [*empty, step_summary(3)]).state is State.OK


# Mismatch.


@pytest.mark.parametrize(
    ("std", "clip", "state"),
    [
        (0.3, 0.04, State.CRITICAL),
        (0.3, 0.01, State.OK),
        (0.15, 0.04, State.OK),
        (0.05, 0.0, State.OK),
    ],
)
def test_mismatch_needs_both_legs(std: float, clip: float, state: State) -> None:
    found = verdict("mismatch", mismatched(std, clip))
    assert found.state is state
    assert found.evidence["mismatch_std"] == pytest.approx(std, rel=0.05)
    assert found.evidence["clip_fraction_positive"] == pytest.approx(clip, abs=1e-9)


def test_mismatch_is_judged_once_the_window_is_full() -> None:
    records = mismatched(0.5, 0.05)
    assert [verdict("mismatch", records[: n + 1]).state for n in range(5)] == [
        *[State.INCONCLUSIVE] * 4,
        State.CRITICAL,
    ]


def test_single_spikes_do_not_move_the_window_over_both_limits() -> None:
    quiet, spike = mismatched(0.02, 0.0, n=9), mismatched(0.42, 0.08, n=9)
    records = [replace(quiet[i], step=i) if i != 6 else replace(spike[i], step=i) for i in range(9)]
    for n in range(5, 10):
        assert verdict("mismatch", records[:n]).state is State.OK


RECOMPUTED = Controls(ratio_reference="recomputed")
SAMPLER = Controls(ratio_reference="sampler")


@pytest.mark.parametrize(
    ("rewards", "applied", "state"),
    [
        ([0.5] * 12, RECOMPUTED, State.OK),
        ([0.5] * 6 + [0.3] * 6, RECOMPUTED, State.WARN),
        ([0.5] * 6 + [0.3] * 6, replace(RECOMPUTED, centering=True), State.OK),
        ([0.5] * 6 + [0.3] * 6, replace(RECOMPUTED, importance="tis"), State.OK),
        (None, RECOMPUTED, State.INCONCLUSIVE),
    ],
)
def test_the_blind_spot_of_recomputed_ratios_is_judged_by_harm(
    rewards: list[float] | None, applied: Controls, state: State
) -> None:
    records = mismatched(0.5, 0.0, n=12, applied=applied)
    if rewards is not None:
        records = [replace(r, scalars={"reward_mean": x}) for r, x in zip(records, rewards, strict=True)]
    assert verdict("mismatch", records).state is state


WIDE = ClipBounds(low=-1.2, high=1.2)


@pytest.mark.parametrize(
    ("clip", "rewards", "applied", "state"),
    [
        (0.08, [0.5] * 12, SAMPLER, State.OK),
        (0.08, [0.5] * 6 + [0.3] * 6, SAMPLER, State.WARN),
        (0.08, [0.5] * 6 + [0.3] * 6, replace(SAMPLER, centering=True), State.OK),
        (0.08, None, SAMPLER, State.INCONCLUSIVE),
    ],
)
def test_behind_moved_bounds_the_clip_fraction_is_theirs_and_harm_judges(
    clip: float, rewards: list[float] | None, applied: Controls, state: State
) -> None:
    nominal = mismatched(0.5, clip, n=12, applied=applied)
    assert verdict("mismatch", nominal).state is State.CRITICAL
    records = [replace(r, clip_bounds=WIDE) for r in nominal]
    if rewards is not None:
        records = [replace(r, scalars={"reward_mean": x}) for r, x in zip(records, rewards, strict=True)]
    assert verdict("mismatch", records).state is state


def test_moved_bounds_that_positive_tokens_pass_still_alarm() -> None:
    records = [replace(r, clip_bounds=ClipBounds(low=-0.3, high=0.3)) for r in mismatched(0.5, 0.08)]
    assert verdict("mismatch", records).state is State.CRITICAL


def test_an_offset_of_every_token_is_a_fault_of_the_pipeline_at_once() -> None:
    off = np.full(N, -3.0) + np.random.default_rng(0).normal(0, 0.1, N)
    found = verdict("pipeline", [step_summary(0, mismatch=(off, off))])
    assert found.state is State.CRITICAL
    assert "pipeline" in found.message


def test_a_ratio_of_one_everywhere_is_not_informative() -> None:
    zeros = np.zeros(N)
    records = [step_summary(i, update=(zeros, zeros), mismatch=(zeros, zeros)) for i in range(6)]
    assert verdict("mismatch", records).state is State.INCONCLUSIVE


@pytest.mark.parametrize(("zero", "state"), [(0, State.CRITICAL), (6000, State.INCONCLUSIVE)])
def test_a_clip_fraction_of_a_few_groups_alarms_no_one(zero: int, state: State) -> None:
    rng = np.random.default_rng(4)
    run = RunState.initial("run")
    for step in range(6):
        noise = rng.normal(0, 0.5, 500), np.where(np.arange(500) < 50, 0.5, rng.normal(0, 0.3, 500))
        summary = step_summary(step, update=noise, mismatch=noise, tokens=1000)
        run = advance(AgentConfig(), run, replace(summary, zero=SignTotals(tokens=zero))).state
    assert run.verdicts["mismatch"].state is state
