"""Steps that arrive out of order, twice, late, or never."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from agent_runs import Plant, step_summary
from case_runs import fired, normal, told
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ConfigDict, TypeAdapter

from trimtab.agent.advance import advance
from trimtab.agent.config import AgentConfig
from trimtab.agent.ordering import PATIENCE, WINDOW
from trimtab.agent.run_state import RunState
from trimtab.agent.state import EventKind, Mode
from trimtab.hooks.records import StepSummary

AUTO = AgentConfig(mode=Mode.AUTO)
JSON: TypeAdapter[list[RunState]] = TypeAdapter(list[RunState], config=ConfigDict(ser_json_inf_nan="strings"))
PLANT = Plant(seed=0, noisy_from=12)
RUN = [PLANT.advance() for _ in range(40)]


def text(state: RunState) -> bytes:
    return JSON.dump_json([state])


IN_ORDER = told(RUN)


def judged(records: list[StepSummary]) -> list[int]:
    """Last judged step after each record."""
    state, steps = RunState.initial("run", Mode.AUTO), []
    for record in records:
        state = advance(AUTO, state, record).state
        steps.append(state.last_step)
    return steps


@st.composite
def arrivals(draw: st.DrawFn) -> list[StepSummary]:
    """The run in an order in which none comes after more than `PATIENCE` later ones, some of them several times."""
    waiting, order = list(range(2, len(RUN))), [0, 1]
    while waiting:
        overtaken = [sum(other > step for other in order) for step in waiting]
        late = [step for step, n in zip(waiting, overtaken, strict=True) if n == PATIENCE]
        order.append(late[0] if late else draw(st.sampled_from(waiting[: PATIENCE + 1])))
        waiting.remove(order[-1])
    again = draw(st.lists(st.tuples(st.integers(2, len(RUN) - 1), st.integers(1, 10)), max_size=20))
    for place, back in sorted(again, reverse=True):
        order.insert(place + 1, order[max(place - back, 0)])
    return [RUN[step] for step in order]


@settings(max_examples=40, deadline=None)
@given(records=arrivals())
def test_arrival_order_and_duplicates_do_not_matter(records: list[StepSummary]) -> None:
    state, events = told(records)
    assert text(state) == text(IN_ORDER[0])
    assert events == IN_ORDER[1]


def test_without_a_gap_nothing_waits() -> None:
    assert judged(RUN) == list(range(40))


def test_a_missing_step_is_waited_for_and_then_given_up() -> None:
    records = [normal(i) for i in (0, 1, 2, 4, 5, 6, 3, 7)]
    assert judged(records) == [0, 1, 2, 2, 2, 6, 6, 7]
    state, _ = told(records[:4])
    again = advance(AUTO, state, records[3])
    assert (again.state, again.ignored) == (state, "step 4: is held back already")
    assert advance(AUTO, told(records[:6])[0], records[6]).ignored == "step 3: late, attempt 1 is at step 6 already"


def test_a_state_that_holds_summaries_back_is_small_and_survives_json() -> None:
    rng = np.random.default_rng(0)
    wide: dict[str, Any] = {
        name: (rng.normal(0, 0.5, 4000), rng.normal(0, 0.5, 4000)) for name in ("update", "mismatch", "shadow")
    }
    late = [step_summary(i, entropy=0.4, scalars={"reward_mean": 0.5}, **wide) for i in (0, 1, 3, 4)]
    state, _ = told(late)
    assert [each.step for each in state.order.held] == [3, 4]
    assert JSON.validate_json(text(state)) == [state]
    assert len(text(state)) < 256 * 1024


@pytest.mark.parametrize(("lost", "after"), [(0, 1), (1, 1), (2, 4)])
def test_what_the_trainer_counts_as_lost_is_not_waited_for(lost: int, after: int) -> None:
    assert judged([normal(0), normal(1), normal(4, dropped_total=lost)])[-1] == after


def test_a_trainer_that_reports_every_tenth_step_is_not_waited_for() -> None:
    assert judged([normal(i) for i in (0, 10, 20, 30, 50, 40)]) == [0, 10, 20, 30, 30, 50]


def test_too_wide_a_gap_is_not_waited_for() -> None:
    at_once = WINDOW + 3
    assert judged([normal(0), normal(1), normal(at_once - 1)])[-1] == 1
    assert judged([normal(0), normal(1), normal(at_once)])[-1] == at_once


def test_a_value_that_is_not_finite_waits_for_nothing() -> None:
    records = [normal(0), normal(1), normal(3), normal(5, scalars={"loss": math.nan})]
    assert judged(records) == [0, 1, 1, 5]
    assert fired(told(records)[1]) == [(5, "nonfinite")]


def test_a_new_attempt_ends_the_wait() -> None:
    records = [normal(0), normal(1), normal(3), normal(3, attempt=2), normal(2)]
    state, events = told(records)
    assert (state.attempt, state.last_step, state.tick, state.order.held) == (2, 3, 4, ())
    assert [e.step for e in events if e.kind is EventKind.ATTEMPT_STARTED] == [0, 3]


def test_a_summary_that_waits_still_gets_the_command_that_is_due() -> None:
    state = replace(told([normal(0), normal(1)])[0], generation=1, person_overrides={"clip_high": 0.3})
    outcome = advance(AUTO, state, normal(3))
    assert outcome.state.last_step == 1
    assert outcome.command is not None
    assert outcome.command.overrides == {"clip_high": 0.3}
