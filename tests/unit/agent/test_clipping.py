"""Precision that silences a few rewarded tokens in every step."""

import numpy as np
import pytest
from agent_runs import step_summary

from trimtab.agent.advance import advance
from trimtab.agent.config import AgentConfig
from trimtab.agent.run_state import RunState
from trimtab.agent.state import State
from trimtab.hooks.controls import ClipBounds, Controls

N = 2000


def share(above: float) -> np.ndarray:
    """Log-ratios of which a share is above the bound, and the rest at 0."""
    return np.where(np.arange(N) < round(above * N), 0.5, 0.0)


def states(
    own: float, twin: float | None, steps: int = 40, every: int = 1, spread: float = 0.15, **fields: object
) -> list[State]:
    state, found = RunState.initial("run"), []
    zero, noise = np.zeros(N), np.tile([spread, -spread], N // 2)
    for step in range(steps):
        shadow = (zero, share(twin)) if twin is not None and step % every == 0 else None
        record = step_summary(step, update=(zero, share(own)), mismatch=(noise, noise), shadow=shadow, **fields)  # type: ignore[arg-type]
        state = advance(AgentConfig(), state, record).state
        found.append(state.verdicts["clipping"].state)
    return found


def first(found: list[State]) -> int:
    return found.index(State.WARN)


def test_the_sum_of_the_excess_alarms_where_no_single_step_would() -> None:
    # From the first full window of the spread on 0.014 - 0.006 a step: past 0.05 with the 7th.
    assert first(states(0.014, 0.0)) == 4 + 6


def test_a_small_mismatch_does_no_harm_whatever_it_clips() -> None:
    assert State.WARN not in states(0.05, 0.0, spread=0.08)


def test_what_the_twin_clips_too_is_not_precisions_doing() -> None:
    assert State.WARN not in states(0.10, 0.10)


def test_a_small_excess_is_forgiven_for_ever() -> None:
    assert State.WARN not in states(0.006, 0.0, steps=300)


def test_a_wild_step_adds_no_more_than_the_cut() -> None:
    assert first(states(1.0, 0.0)) == 4 + 3


def test_only_steps_with_a_twin_count() -> None:
    assert first(states(0.014, 0.0, steps=80, every=3)) == 3 * (2 + 6)


def test_without_a_twin_it_is_not_observed() -> None:
    assert set(states(0.1, None)) == {State.NOT_OBSERVED}


@pytest.mark.parametrize(
    "fields",
    [
        {"applied": Controls(ratio_reference="recomputed")},
        {"clip_bounds": ClipBounds(low=-1.0, high=1.0)},
    ],
)
def test_it_says_nothing_of_other_ratios_and_of_moved_bounds(fields: dict[str, object]) -> None:
    assert set(states(0.1, 0.0, **fields)) == {State.NOT_OBSERVED}
