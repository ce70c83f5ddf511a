"""Exact verdicts on the asymmetry of the signs, against the twin and the learnt baseline."""

from dataclasses import replace

import numpy as np
import pytest
from agent_runs import step_summary
from agent_verdicts import verdict

from trimtab.agent.state import State
from trimtab.hooks.controls import ClipBounds
from trimtab.hooks.records import StepSummary

N = 2000


def tailed(depth: float, clip: float, twin: float | None, n: int = 6) -> list[StepSummary]:
    def tail(by: float) -> np.ndarray:
        return np.where(np.arange(N) < 0.06 * N, -by, 0.0)

    positive = np.where(np.arange(N) < clip * N, 0.5, 0.0)
    shadow = None if twin is None else (tail(twin), np.zeros(N))
    return [step_summary(i, update=(tail(depth), positive), shadow=shadow) for i in range(n)]


@pytest.mark.parametrize(
    ("depth", "clip", "twin", "state"),
    [
        (1.5, 0.07, 0.12, State.CRITICAL),
        (1.2, 0.01, 0.12, State.OK),
        (0.4, 0.07, 0.2, State.OK),
        (1.5, 0.07, 1.4, State.OK),
    ],
)
def test_asymmetry_is_judged_against_the_twin(depth: float, clip: float, twin: float, state: State) -> None:
    found = verdict("asymmetry", tailed(depth, clip, twin))
    assert found.state is state
    assert "BF16 twin" in found.message
    assert found.evidence["asymmetry_gap"] == pytest.approx(twin - depth, abs=0.05)


@pytest.mark.parametrize(("low", "state"), [(-0.5, State.WARN), (-1.6, State.OK)])
def test_behind_moved_bounds_the_penalties_that_escape_are_judged(low: float, state: State) -> None:
    tails = [np.where(np.arange(N) < share * N, -depth, 0.0) for share, depth in ((0.13, 1.5), (0.06, 0.12))]
    records = [
        replace(
            step_summary(i, update=(tails[0], np.zeros(N)), shadow=(tails[1], np.zeros(N))),
            clip_bounds=ClipBounds(low=low, high=1.2),
        )
        for i in range(6)
    ]
    found = verdict("asymmetry", records)
    assert found.state is state
    assert found.evidence["escape_excess"] == pytest.approx(0.13 if low > -1.5 else 0.0, abs=1e-9)
    assert "moved clip bounds" in found.message


def test_a_twin_every_twenty_steps_still_judges_the_steps_between() -> None:
    records = tailed(1.5, 0.07, 0.1, n=5) + tailed(1.5, 0.07, None, n=40)[5:]
    assert verdict("asymmetry", records[:30]).state is State.CRITICAL
    assert verdict("asymmetry", records[:31]).state is not State.CRITICAL


def test_without_a_twin_the_learnt_baseline_judges_and_says_so() -> None:
    rng = np.random.default_rng(3)

    def records(n: int, shift_from: int) -> list[StepSummary]:
        return [
            step_summary(
                i,
                update=(rng.normal(-0.3 if i >= shift_from else 0.0, 0.1, N), rng.normal(0, 0.1, N)),
                entropy=0.4,
            )
            for i in range(n)
        ]

    assert verdict("asymmetry", records(29, 99)).state is State.INCONCLUSIVE
    found = verdict("asymmetry", records(44, 40))
    assert found.state is State.WARN
    assert found.message.startswith("against the learnt baseline")


def test_a_new_regime_starts_the_baseline_anew() -> None:
    rng = np.random.default_rng(4)
    records = [
        step_summary(
            i,
            update=(rng.normal(-0.3 if i >= 40 else 0.0, 0.1, N), rng.normal(0, 0.1, N)),
            entropy=0.4 if i < 36 else 0.1,
        )
        for i in range(50)
    ]
    assert verdict("asymmetry", records).state is State.INCONCLUSIVE
