"""What the agent makes of a job that is read from its log: what is there means the same, nothing else is claimed."""

import math
from dataclasses import replace

import pytest
from agent_runs import step_summary
from case_runs import acted, fired, incident, normal, scalars, told

from trimtab.agent.detectors import DETECTORS
from trimtab.agent.signals import read_all
from trimtab.agent.state import State
from trimtab.hooks.log_facts import LogFacts
from trimtab.hooks.records import StepSummary

FACTS = LogFacts(source="jsonl", framework="trl")
OBSERVED_BY_NAME = ("entropy", "mismatch_kl", "mismatch_mean", "chi2_token", "chi2_sequence")


def read(step: int, facts: LogFacts = FACTS, **values: float) -> StepSummary:
    return StepSummary(job="run", attempt=1, step=step, scalars=scalars(**values), log=facts)


@pytest.mark.parametrize("name", OBSERVED_BY_NAME)
def test_a_scalar_stands_in_where_nothing_was_measured(name: str) -> None:
    assert read_all(read(0, **{name: 0.25}))[name] == 0.25
    assert read_all(read(0))[name] is None
    measured = normal(0, scalars=scalars(**{name: 99.0}))
    assert read_all(measured)[name] != 99.0


def test_too_few_tokens_are_no_reason_to_believe_a_scalar() -> None:
    few = step_summary(0, update=([0.1], [0.1]), mismatch=([0.1], [0.1]), scalars=scalars(mismatch_kl=0.5))
    assert read_all(few)["mismatch_kl"] is None


def test_what_a_log_does_not_tell_is_not_observed() -> None:
    signals = read_all(read(0))
    assert signals["tokens"] is None
    assert signals["nonfinite"] == 0.0
    assert read_all(replace(read(0), scalars={"reward_mean": 0.5}))["nonfinite"] is None
    state, events = told([read(step) for step in range(50)])
    assert {name: verdict.state for name, verdict in state.verdicts.items() if verdict.state is State.OK} == {
        "nonfinite": State.OK,
        "vanished": State.OK,
        "garbage": State.OK,
        "reward": State.OK,
        "jump": State.OK,
        "drift": State.OK,
    }
    assert fired(events) == []
    assert "what the logger left out or averaged away is not seen" in state.verdicts["nonfinite"].message
    assert set(state.verdicts) == set(DETECTORS)


def test_nothing_is_claimed_finite_where_neither_loss_nor_gradient_is_logged() -> None:
    state, _ = told([replace(read(step), scalars={"reward_mean": 0.5}) for step in range(5)])
    assert state.verdicts["nonfinite"].state is State.NOT_OBSERVED


def test_no_signal_to_learn_from_is_seen_in_a_log_too() -> None:
    state, events = told([read(step, zero_variance_fraction=1.0, reward_mean=0.5) for step in range(40)])
    assert [name for _, name in fired(events)] == ["learning"]
    assert state.verdicts["learning"].state is State.WARN
    state, _ = told([read(step, zero_variance_fraction=0.5) for step in range(5)])
    assert state.verdicts["learning"].state is State.OK


def test_a_mismatch_in_a_log_asks_for_no_remedy_and_blames_no_format() -> None:
    quiet = [read(step, mismatch_kl=0.001, token_mult_prob_error=1.01) for step in range(60)]
    loud = [read(step, mismatch_kl=0.5, token_mult_prob_error=2.0) for step in range(60, 90)]
    state, events = told([*quiet, *loud])
    assert fired(events)
    assert not acted(events)
    for found in state.incidents.values():
        assert "both sides compute in BF16" not in found.likely_cause


def test_vanished_keys_are_told_in_their_step_and_resolve() -> None:
    gone = LogFacts(source="jsonl", framework="trl", vanished=("entropy", "loss"))
    state, events = told([read(0), read(1, gone), *(read(step) for step in range(2, 120))])
    assert fired(events) == [(1, "vanished")]
    found = incident(state, "vanished")
    assert found.severity is State.WARN
    assert found.resolved_step is not None
    assert found.likely_cause.startswith("loggers leave out what is not finite, and what was not computed")
    assert not acted(events)
    message = state.verdicts["vanished"].message
    assert message == "what is always logged is there"


def test_what_is_logged_as_not_finite_is_critical_at_once() -> None:
    state, events = told([read(0), read(1, loss=math.nan)])
    assert fired(events) == [(1, "nonfinite")]
    assert incident(state, "nonfinite").severity is State.CRITICAL
