"""Sign-asymmetric drift without a BF16 twin: seen in steps, and never in healthy runs."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from agent_runs import drift_run

from trimtab.agent.advance import advance
from trimtab.agent.config import AgentConfig
from trimtab.agent.run_state import RunState
from trimtab.agent.state import EventKind, Phase, State
from trimtab.hooks.records import StepSummary

CONFIG = AgentConfig()
ONSET = 120


def alarms(records: Iterable[StepSummary]) -> list[tuple[str, int]]:
    state = RunState.initial("run")
    found = []
    for record in records:
        outcome = advance(CONFIG, state, record)
        state = outcome.state
        found += [
            (event.detail["detector"], event.step)
            for event in outcome.events
            if event.kind is EventKind.VERDICT_CHANGED and event.detail["after"] in ("warn", "critical")
        ]
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("drift", "within"),
    [
        ({"tail": 0.2}, 5),
        ({"tail": 0.02, "wander": 0.15}, 10),
        ({"tail": 0.05, "wander": 0.15}, 10),
        ({"bulk": 0.005, "wander": 0.15}, 12),
        ({"tail": 0.2, "ramp": 200, "wander": 0.15}, 15),
    ],
)
def test_a_drift_of_punished_tokens_is_seen(seed: int, drift: dict[str, float], within: int) -> None:
    found = alarms(drift_run(seed, steps=ONSET + within + 1, onset=ONSET, **drift))  # type: ignore[arg-type]
    assert [name for name, _ in found] == ["asymmetry"]
    assert ONSET <= found[0][1] <= ONSET + within


@pytest.mark.parametrize(("seed", "wander"), [(0, 0.0), (1, 0.15), (2, 0.15)])
def test_a_thousand_healthy_steps_are_silent(seed: int, wander: float) -> None:
    assert alarms(drift_run(seed, steps=1000, wander=wander, tokens=2000)) == []


@pytest.mark.parametrize("change", [{"generation": 1}, {"attempt": 2}], ids=["an action", "a new attempt"])
def test_an_incident_does_not_outlive_its_cause_when_the_baseline_starts_again(change: dict[str, int]) -> None:
    """No baseline, no verdict: were it not learnt while the incident is open, nothing could ever close it."""
    state = RunState.initial("run")
    drifting = list(drift_run(5, steps=80, onset=60, tail=0.2, tokens=2000))
    mended = [replace(one, step=one.step + 80, **change) for one in drift_run(6, steps=90, tokens=2000)]
    phases = []
    for summary in (*drifting, *mended):
        state = advance(CONFIG, state, summary).state
        incident = state.incidents.get("run/asymmetry")
        phases.append(incident and incident.phase)
    assert phases[79] is Phase.FIRING
    assert phases[-1] is Phase.RESOLVED
    assert state.verdicts["asymmetry"].state is State.OK
