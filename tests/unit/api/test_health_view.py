"""Only OK is green, and what nobody saw is not."""

from dataclasses import replace

import pytest

from trimtab.agent.run_state import RunState
from trimtab.agent.state import Incident, Phase, State, Verdict
from trimtab.api.health_view import Worst, overall, worst_of


def state_with(*states: State, incident: Phase | None = None) -> RunState:
    verdicts = {str(i): Verdict(detector=str(i), state=state) for i, state in enumerate(states)}
    incidents = {}
    if incident is not None:
        incidents["x"] = Incident(
            fingerprint="x", detector="0", severity=State.CRITICAL, phase=incident, since_step=0, last_alarm_step=0
        )
    return RunState(job="run", mode=RunState.initial("run").mode, verdicts=verdicts, incidents=incidents)


@pytest.mark.parametrize(
    ("states", "worst"),
    [
        ((), State.NOT_OBSERVED),
        ((State.NOT_OBSERVED,), State.NOT_OBSERVED),
        ((State.OK, State.NOT_OBSERVED), State.OK),
        ((State.INCONCLUSIVE, State.NOT_OBSERVED), State.INCONCLUSIVE),
        ((State.OK, State.INCONCLUSIVE), State.OK),
        ((State.INCONCLUSIVE, State.WARN, State.OK), State.WARN),
        ((State.WARN, State.CRITICAL), State.CRITICAL),
    ],
)
def test_the_worst_verdict_counts(states: tuple[State, ...], worst: State) -> None:
    assert overall(state_with(*states)) is worst


@pytest.mark.parametrize("seen", [State.INCONCLUSIVE, State.NOT_OBSERVED])
def test_that_there_are_numbers_is_not_green(seen: State) -> None:
    states = {"nonfinite": State.OK, "tokens": State.OK, "mismatch": seen}
    verdicts = {name: Verdict(detector=name, state=state) for name, state in states.items()}
    state = RunState(job="run", mode=RunState.initial("run").mode, verdicts=verdicts)
    assert overall(state) is seen
    worse = {**verdicts, "tokens": Verdict(detector="tokens", state=State.WARN)}
    assert overall(replace(state, verdicts=worse)) is State.WARN
    better = {**verdicts, "reward": Verdict(detector="reward", state=State.OK)}
    assert overall(replace(state, verdicts=better)) is State.OK


def test_a_firing_incident_counts_until_it_resolves() -> None:
    assert overall(state_with(State.OK, incident=Phase.FIRING)) is State.CRITICAL
    assert overall(state_with(State.OK, incident=Phase.PENDING)) is State.OK
    assert overall(state_with(State.OK, incident=Phase.RESOLVED)) is State.OK


def test_an_incident_that_fires_is_named_though_its_detector_alarms_no_more() -> None:
    named = Worst(detector="0", state=State.CRITICAL, message="")
    assert worst_of(state_with(State.OK, incident=Phase.FIRING)) == named
    assert worst_of(state_with(State.OK, State.WARN, incident=Phase.FIRING)) == named, "the state is its"
    assert worst_of(state_with(State.OK, State.CRITICAL, incident=Phase.FIRING)) == named.model_copy(
        update={"detector": "1"}
    )
    explained = state_with(State.INCONCLUSIVE, incident=Phase.FIRING)
    explained.incidents["x"] = replace(explained.incidents["x"], cause="run/other")
    assert worst_of(explained) == named
    assert worst_of(state_with(State.OK, incident=Phase.RESOLVED)) is None
