"""D31 to D38: entropy, reward, groups. The reports are other people's runs, restated."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from agent_runs import step_summary
from case_runs import acted, fired, incident, normal, scalars, told

from trimtab.agent.state import State
from trimtab.hooks.records import SignTotals, StepSummary


def d31() -> None:
    """verl-project/verl#5953: entropy from 0.8 to 0.02 in 60 steps, reward flat. A collapse; advice, and no action."""
    entropy = np.geomspace(0.8, 0.02, 60)
    state, events = told([step_summary(i, entropy=float(entropy[i]), scalars=scalars()) for i in range(60)])
    assert "entropy" in [name for _, name in fired(events)]
    assert incident(state, "entropy").proposed.startswith("advice only: ")
    assert not acted(events)


def d32() -> None:
    """verl-project/verl#2738: entropy from 0.3 to 2.0 over 1000 steps. Harm with a falling reward, at most an early
    sign without."""
    rng = np.random.default_rng(32)
    noise = rng.normal(0, 0.01, 1000)
    entropy = np.linspace(0.3, 2.0, 1000) + noise

    def run(last_reward: float) -> set[str]:
        reward = np.linspace(0.6, last_reward, 1000) + rng.normal(0, 0.005, 1000)
        records = [
            step_summary(i, entropy=float(entropy[i]), scalars=scalars(reward_mean=float(reward[i])))
            for i in range(1000)
        ]
        _, events = told(records)
        assert not acted(events)
        return {name for _, name in fired(events)}

    assert run(0.42) & {"entropy", "reward"}
    assert run(0.62) <= {"entropy_trend"}


def idle(step: int, **changes: float) -> StepSummary:
    """A step in which every advantage is 0."""
    summary = step_summary(step, entropy=0.4, scalars=scalars(**changes))
    return replace(summary, negative=SignTotals(), positive=SignTotals(), zero=SignTotals(tokens=1000))


def d34() -> None:
    """huggingface/trl#3857: no group has any variance of reward, while groups differ. Not converged, and not green."""
    state, events = told([idle(i, zero_variance_fraction=1.0, loss=0.0, grad_norm=0.0) for i in range(40)])
    assert fired(events) == [(10, "learning")]
    verdict = state.verdicts["learning"]
    assert verdict.message == "no signal to learn from in 40 steps: rewards differ in no group"
    assert "advantages compare inside a group" in incident(state, "learning").likely_cause
    assert state.verdicts["reward"].state is State.INCONCLUSIVE
    for paused in ("mismatch", "asymmetry"):
        assert state.verdicts[paused].state is State.NOT_OBSERVED
    assert all(math.isfinite(each.score) for each in state.verdicts.values())


def d34_a_run_that_has_learnt_everything() -> None:
    """The counterpart: no variance because the reward is where it can be."""
    rewards = [*np.linspace(0.35, 0.99, 100), *([0.99] * 100)]
    records = [
        normal(i, scalars=scalars(reward_mean=float(reward), zero_variance_fraction=float(i >= 100)))
        for i, reward in enumerate(rewards)
    ]
    state, events = told(records)
    assert [name for _, name in fired(events) if name == "learning"] == []
    assert state.verdicts["learning"].state is State.INCONCLUSIVE
    assert "nothing left to learn" in state.verdicts["learning"].message


def d35() -> None:
    """huggingface/trl#5588: every advantage is 0, and the gradient is not: the KL penalty alone moves the weights."""
    state, _ = told([idle(i, grad_norm=0.2, kl=0.01) for i in range(3)])
    assert state.verdicts["learning"].message.endswith("; updates are driven only by the KL penalty")
    state, _ = told([normal(i) for i in range(3)])
    assert "KL" not in state.verdicts["learning"].message


def d37() -> None:
    """PrimeIntellect-ai/prime-rl#964: reward 0.95 to 0.1 in 50 steps at step 3000, mismatch unknown. No false cause."""
    rewards = [*([0.95] * 3000), *np.linspace(0.95, 0.1, 50)]
    state, events = told([step_summary(i, scalars={"reward_mean": float(reward)}) for i, reward in enumerate(rewards)])
    assert {name for _, name in fired(events)} == {"reward"}
    assert incident(state, "reward").likely_cause == (
        "unknown: no earlier sign is firing; missing, since not captured: mismatch, asymmetry, clipping, overreach"
    )
    assert state.verdicts["mismatch"].state is State.NOT_OBSERVED
    assert not acted(events)


def d38() -> None:
    """areal-project/AReaL#121: loss +inf at step 40. The kind is kept, and the alert is critical."""
    state, events = told([*(normal(i) for i in range(40)), normal(40, scalars=scalars(loss=math.inf))])
    assert fired(events) == [(40, "nonfinite")]
    assert state.verdicts["nonfinite"].message == "loss: 1 +inf"
    assert state.verdicts["nonfinite"].state is State.CRITICAL
    assert state.tracks["grad_norm"].recent[-1] == 0.2


CASES: dict[str, Callable[[], None]] = {
    case.__name__.upper(): case for case in (d31, d32, d34, d34_a_run_that_has_learnt_everything, d35, d37, d38)
}


@pytest.mark.parametrize("case", CASES)
def test_public_case(case: str) -> None:
    CASES[case]()
