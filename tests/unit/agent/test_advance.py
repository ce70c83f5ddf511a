"""The fold itself: duplicates, attempts, generations, JSON and loss."""

import math
from dataclasses import replace

import pytest
from agent_runs import Plant, step_summary
from agent_verdicts import reloaded, text
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ConfigDict, TypeAdapter

from trimtab.agent.advance import Outcome, advance
from trimtab.agent.config import AgentConfig, with_settings
from trimtab.agent.replay import replay
from trimtab.agent.run_state import RunState
from trimtab.agent.signals import read_all
from trimtab.agent.state import Event, EventKind, Mode, OperatorAction, OperatorVerb
from trimtab.hooks.records import NonFinite, StepSummary

AUTO = AgentConfig(mode=Mode.AUTO)
EVENTS: TypeAdapter[list[Event]] = TypeAdapter(list[Event], config=ConfigDict(ser_json_inf_nan="strings"))


def recorded(plant: Plant, steps: int, config: AgentConfig = AUTO) -> list[StepSummary]:
    """The ledger of a run under the agent."""
    state, ledger = RunState.initial(plant.job, config.mode), []
    for _ in range(steps):
        ledger.append(plant.advance())
        outcome = advance(config, state, ledger[-1])
        state = outcome.state
        plant.obey(outcome.command)
    return ledger


LEDGER = recorded(Plant(seed=0, noisy_from=12), 60)


def replayed(config: AgentConfig, ledger: list[StepSummary | OperatorAction]) -> tuple[RunState, list[Event]]:
    """The last state and every event."""
    outcomes = list(replay(config, RunState.initial("run", config.mode), ledger))
    return outcomes[-1].state, [event for outcome in outcomes for event in outcome.events]


def test_replay_is_the_fold() -> None:
    state, events = RunState.initial("run", Mode.AUTO), []
    for record in LEDGER:
        outcome = advance(AUTO, state, record)
        state, events = outcome.state, [*events, *outcome.events]
    last, again = replayed(AUTO, LEDGER)
    assert text(last) == text(state)
    assert EVENTS.dump_json(again) == EVENTS.dump_json(events)


def test_replay_under_other_settings_judges_otherwise() -> None:
    strict = with_settings(AUTO, {"detectors.mismatch.std_limit": 5.0, "detectors.asymmetry.gap_limit": 50.0})
    _, events = replayed(strict, LEDGER)
    assert [e for e in events if e.kind is EventKind.CONTROLS_CHANGED] == []


def test_replay_of_nothing_is_nothing() -> None:
    assert list(replay(AUTO, RunState.initial("run", AUTO.mode), [])) == []


def test_replay_passes_over_a_decision_that_does_not_fit_its_past() -> None:
    approval = OperatorAction(job="run", verb=OperatorVerb.APPROVE, issuer="ada", reason="yes", proposal=99)
    last, events = replayed(AUTO, [*LEDGER[:30], approval, *LEDGER[30:]])
    expected, same = replayed(AUTO, LEDGER)
    assert text(last) == text(expected)
    assert EVENTS.dump_json(events) == EVENTS.dump_json(same)


def test_a_record_of_another_job_is_refused() -> None:
    with pytest.raises(ValueError, match="job: the record is of 'other'"):
        advance(AUTO, RunState.initial("run"), step_summary(0, job="other"))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_split_and_reload_gives_the_same(data: st.DataObject) -> None:
    whole, events = replayed(AUTO, LEDGER)
    cuts = data.draw(st.sets(st.integers(0, len(LEDGER) - 1), max_size=5))
    state, again = RunState.initial("run", Mode.AUTO), []
    for place, record in enumerate(LEDGER):
        if place in cuts:
            state = reloaded(state)
        outcome = advance(AUTO, state, record)
        state, again = outcome.state, [*again, *outcome.events]
    assert text(state) == text(whole)
    assert EVENTS.dump_json(again) == EVENTS.dump_json(list(events))


@settings(max_examples=25, deadline=None)
@given(repeats=st.lists(st.integers(0, 3), min_size=60, max_size=60), back=st.integers(1, 20))
def test_duplicates_and_late_records_change_nothing(repeats: list[int], back: int) -> None:
    whole, events = replayed(AUTO, LEDGER)
    state, again = RunState.initial("run", Mode.AUTO), []
    for place, record in enumerate(LEDGER):
        late = [LEDGER[max(place - back, 0)]] if place % 7 == 0 and place else []
        for each in [record] * (1 + repeats[place]) + late:
            outcome = advance(AUTO, state, each)
            state, again = outcome.state, [*again, *outcome.events]
    assert text(state) == text(whole)
    assert EVENTS.dump_json(again) == EVENTS.dump_json(list(events))


def test_a_duplicate_still_gets_the_command_that_is_due() -> None:
    state = RunState.initial("run")
    state = advance(AUTO, state, step_summary(0)).state
    patch = OperatorAction(
        job="run", verb=OperatorVerb.PATCH_CONTROLS, issuer="ada", reason="r", overrides={"clip_high": 0.3}
    )
    state = advance(AUTO, state, patch).state
    outcome = advance(AUTO, state, step_summary(0))
    assert outcome.state == state
    assert outcome.command is not None
    assert outcome.command.overrides == {"clip_high": 0.3}


def test_other_ranks_are_not_judged() -> None:
    state = advance(AUTO, RunState.initial("run"), step_summary(0)).state
    outcome = advance(AUTO, state, replace(step_summary(1, nonfinite={"loss": NonFinite(nan=1)}), rank=1))
    assert outcome == Outcome(state=state, ignored="rank 1: only rank 0 is judged")


def test_whatever_becomes_of_a_summary_its_signals_are_handed_out() -> None:
    state, again = RunState.initial("run"), []
    for attempt, step in ((1, 0), (1, 1), (1, 3), (1, 3), (2, 0), (1, 4), (1, 5)):  # step 3 waits for step 2
        record = step_summary(step, attempt=attempt, scalars={"reward_mean": 0.1 * step})
        outcome = advance(AUTO, state, record)
        assert outcome.signals == read_all(record)
        state = outcome.state
        again.append(bool(outcome.ignored))
    assert again == [False, False, False, True, False, True, True]
    kill = OperatorAction(job="run", verb=OperatorVerb.KILL, issuer="ada", reason="r")
    assert advance(AUTO, state, kill).signals == {}


def test_a_state_with_non_finite_values_survives_json() -> None:
    wild = {"loss": math.nan, "grad_norm": math.inf, "reward_mean": -math.inf, "length_mean": 1e308}
    state = RunState.initial("run")
    for step in range(3):
        state = advance(AUTO, state, step_summary(step, scalars=wild, nonfinite={"entropy": NonFinite(nan=4)})).state
    assert text(reloaded(state)) == text(state)
    assert state.tracks["grad_norm"].recent == (math.inf,) * 3
    assert b'"NaN"' in text(state)
    assert b'"-Infinity"' in text(state)


def test_the_state_stays_small() -> None:
    state, _ = replayed(AUTO, LEDGER)
    assert len(text(state)) < 64 * 1024


# Attempts.


def test_a_new_attempt_may_go_back_and_starts_its_baselines_anew() -> None:
    state, _ = replayed(AUTO, LEDGER)
    outcome = advance(AUTO, state, step_summary(40, attempt=2, scalars={"reward_mean": 0.2}))
    assert (outcome.state.attempt, outcome.state.last_step, outcome.state.steps) == (2, 40, 1)
    assert outcome.state.tick == state.tick + 1
    assert outcome.state.tracks["reward_mean"].recent == (0.2,)
    assert outcome.events[0].kind is EventKind.ATTEMPT_STARTED
    assert outcome.state.verdicts["reward"].state.value == "inconclusive"


def test_an_older_attempt_that_still_reports_is_on_record_once_and_never_judged() -> None:
    state = advance(AUTO, RunState.initial("run"), step_summary(7, attempt=200)).state
    first = advance(AUTO, state, step_summary(3, attempt=100))
    assert [event.kind for event in first.events] == [EventKind.OLDER_ATTEMPT]
    assert "attempt 100 still reports, at step 3" in first.events[0].message
    assert "an attempt above 200" in first.events[0].message
    assert (first.command, first.state) == (None, replace(state, older_reported=True))
    second = advance(AUTO, first.state, step_summary(4, attempt=100))
    assert (second.events, second.state) == ((), first.state)
    for outcome in (first, second):
        assert outcome.ignored == "attempt 100: attempt 200 is newer, and only the newest is judged"
    judged = advance(AUTO, second.state, step_summary(8, attempt=200))
    assert (judged.ignored, judged.state.last_step) == ("", 8)
    again = advance(AUTO, advance(AUTO, judged.state, step_summary(0, attempt=300)).state, step_summary(9, attempt=200))
    assert [event.kind for event in again.events] == [EventKind.OLDER_ATTEMPT]


def test_a_step_that_was_passed_is_ignored_in_words() -> None:
    state = advance(AUTO, RunState.initial("run"), step_summary(7)).state
    assert advance(AUTO, state, step_summary(7)).ignored == "step 7: late, attempt 1 is at step 7 already"


def test_what_is_wanted_outlives_a_restart_of_the_trainer() -> None:
    state, _ = replayed(AUTO, LEDGER)
    wanted = state.overrides
    assert wanted == {"ratio_reference": "recomputed", "centering": True}
    outcome = advance(AUTO, state, step_summary(40, attempt=2))
    assert outcome.command is not None
    assert (outcome.command.attempt, outcome.command.overrides) == (2, wanted)


def test_a_gap_in_the_steps_is_no_alarm() -> None:
    state, events = replayed(AUTO, [step_summary(i) for i in (0, 1, 3, 4, 100)])
    assert [event.kind for event in events] == [EventKind.ATTEMPT_STARTED]
    assert state.steps == 5
