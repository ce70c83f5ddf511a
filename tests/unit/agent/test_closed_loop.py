"""The whole loop on plants that fail as measured runs do: what is alerted, what is done, and when."""

import numpy as np
import pytest
from agent_runs import CAPABLE, Plant

from trimtab.agent.advance import advance
from trimtab.agent.config import AgentConfig, PolicySettings
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Event, EventKind, Mode, Phase
from trimtab.hooks.controls import Controls


def driven(plant: Plant, config: AgentConfig, steps: int = 150) -> tuple[RunState, list[Event]]:
    """The plant under the agent, every reply delivered."""
    state, events = RunState.initial(plant.job, config.mode), []
    for _ in range(steps):
        outcome = advance(config, state, plant.advance())
        state = outcome.state
        events += outcome.events
        plant.obey(outcome.command)
    return state, events


def steps_of(events: list[Event], kind: EventKind) -> list[int]:
    return [event.step for event in events if event.kind is kind]


def alerts(events: list[Event]) -> list[int]:
    return [e.step for e in events if e.kind is EventKind.VERDICT_CHANGED and e.detail["after"] in ("warn", "critical")]


@pytest.mark.parametrize("seed", range(3))
def test_the_cliff_is_seen_at_step_4_and_centred_at_5(seed: int) -> None:
    plant = Plant(seed=seed, noisy_from=0)
    state, events = driven(plant, AgentConfig(mode=Mode.AUTO))
    assert alerts(events)[0] == 4
    assert steps_of(events, EventKind.CONTROLS_CHANGED) == [5]
    assert steps_of(events, EventKind.CONTROLS_APPLIED) == [6]
    assert state.overrides == plant.overrides == {"ratio_reference": "recomputed", "centering": True}
    assert plant.reward > 0.93


def test_unattended_the_cliff_collapses_with_an_alert_and_no_action() -> None:
    plant = Plant(seed=0, noisy_from=0)
    state, events = driven(plant, AgentConfig())
    assert alerts(events)[0] == 4
    assert steps_of(events, EventKind.CONTROLS_CHANGED) == []
    assert steps_of(events, EventKind.PROPOSED) == []
    assert state.generation == 0
    assert plant.reward < 0.2


@pytest.mark.parametrize("seed", range(3))
def test_a_switch_at_step_12_is_seen_within_5_steps(seed: int) -> None:
    _, events = driven(Plant(seed=seed, noisy_from=12), AgentConfig(mode=Mode.AUTO))
    assert 12 <= alerts(events)[0] <= 17
    assert 12 <= steps_of(events, EventKind.CONTROLS_CHANGED)[0] <= 19


@pytest.mark.parametrize("shadow", [True, False])
@pytest.mark.parametrize("spread", [0.014, 0.075])
@pytest.mark.parametrize("seed", range(4))
def test_healthy_runs_are_silent(seed: int, spread: float, shadow: bool) -> None:
    _, events = driven(Plant(seed=seed, spread=spread, shadow=shadow), AgentConfig(mode=Mode.AUTO))
    assert alerts(events) == []
    assert steps_of(events, EventKind.CONTROLS_CHANGED) == []


def test_only_what_is_allowed_is_done() -> None:
    config = AgentConfig(mode=Mode.AUTO, policy=PolicySettings(allow=("calibrated_clipping",)))
    state, events = driven(Plant(seed=0, noisy_from=0), config)
    assert state.overrides == {"clip_mode": "calibrated"}
    assert len(steps_of(events, EventKind.CONTROLS_CHANGED)) == 1


CALIBRATED_ONLY = AgentConfig(mode=Mode.AUTO, policy=PolicySettings(allow=("calibrated_clipping",)))


@pytest.mark.parametrize("seed", range(3))
def test_calibrated_bounds_that_reach_the_twins_clip_resolve_the_incident_while_the_mismatch_stays(seed: int) -> None:
    plant = Plant(seed=seed, noisy_from=0)
    state, _ = driven(plant, CALIBRATED_ONLY)
    summary = plant.advance()
    assert summary.clip_bounds is not None
    assert summary.clip_bounds.low < -1.0
    assert {i.detector: i.phase for i in state.incidents.values()} == {
        "mismatch": Phase.RESOLVED,
        "asymmetry": Phase.RESOLVED,
    }
    mismatch = state.verdicts["mismatch"]
    assert mismatch.evidence["mismatch_std"] > 0.25
    assert "moved clip bounds" in mismatch.message
    assert plant.reward > 0.85


class DeepPlant(Plant):
    """Punished tokens lie far below any bound, and not so far that it were a fault of the pipeline."""

    def _noise(self, n: int, negative: bool, noisy: bool, spike: float) -> np.ndarray:
        return np.maximum(super()._noise(n, negative, noisy, spike), -15.0)


def test_where_bounds_at_their_cap_do_not_save_the_run_the_incident_is_back_by_its_harm() -> None:
    plant = DeepPlant(seed=0, noisy_from=0, depth=6.0)
    state, events = driven(plant, CALIBRATED_ONLY, steps=60)
    assert plant.reward < 0.25
    incident = state.incidents["run/mismatch"]
    assert (incident.phase, incident.occurrences) == (Phase.FIRING, 2)
    assert "moved clip bounds, which blind the clip fraction to it; reward" in incident.message
    [refused] = [event for event in events if event.kind is EventKind.REFUSED]
    assert refused.detail["fault"] == "exhausted"
    assert refused.step == incident.firing_step


def test_without_a_sampler_head_centring_is_refused_once_and_the_next_remedy_taken() -> None:
    from dataclasses import replace

    plant = Plant(seed=0, noisy_from=0, capabilities=replace(CAPABLE, sampler_head=0))
    state, events = driven(plant, AgentConfig(mode=Mode.AUTO))
    refused = [e for e in events if e.kind is EventKind.REFUSED]
    assert [e.detail["remedy"] for e in refused] == ["score_centering"]
    assert "sampler head" in refused[0].message
    assert state.overrides == {"ratio_reference": "recomputed"}


def test_a_remedy_that_contradicts_the_runs_own_objective_is_refused_once_and_the_next_taken() -> None:
    plant = Plant(seed=0, noisy_from=0, own=Controls(objective="gspo", ratio_reference="sampler"))
    state, events = driven(plant, AgentConfig(mode=Mode.AUTO))
    refused = [e for e in events if e.kind is EventKind.REFUSED]
    assert [e.detail["remedy"] for e in refused] == ["score_centering"]
    assert "gspo has one a sequence" in refused[0].message
    assert state.overrides == {"ratio_reference": "recomputed"}
