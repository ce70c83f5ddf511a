"""What is usual, and where it would alarm, as the service tells it."""

from dataclasses import asdict

import httpx
import pytest
from agent_runs import Plant
from api_runs import drive

from trimtab.agent.config import AgentConfig
from trimtab.agent.detectors import DETECTORS
from trimtab.api.baselines_view import BaselinesView, SignalView
from trimtab.api.client import Client
from trimtab.api.service import Service


@pytest.fixture
def told(client: Client) -> BaselinesView:
    drive(client, Plant(seed=0, noisy_from=45), 60)
    return client.baselines("run")


def signals(view: BaselinesView) -> dict[str, SignalView]:
    return {signal.name: signal for signal in view.signals}


def test_a_baseline_is_what_the_state_holds(told: BaselinesView, service: Service) -> None:
    state = service.state("run")
    assert (told.attempt, told.step, told.window) == (1, 59, 5)
    for name, signal in signals(told).items():
        track = state.tracks[name]
        assert (signal.value, signal.age) == (track.recent[-1], track.age)
        if not signal.detectors:
            assert signal.baselines == []
            continue
        [shown] = signal.baselines
        kept = track.baseline
        assert (shown.level, shown.anchor) == (
            (None, None)
            if kept.average is None or kept.anchor is None
            else (kept.average.location, kept.anchor.location)
        )
        assert (shown.warming == 0) is (kept.average is not None)


def test_an_open_incident_freezes_what_its_detector_looks_at(told: BaselinesView) -> None:
    assert signals(told)["mismatch_std"].frozen_by[:1] == ["mismatch"]
    assert signals(told)["mismatch_std"].detectors[:1] == ["mismatch"]
    assert signals(told)["entropy"].frozen_by == []
    [line] = [one for one in signals(told)["mismatch_std"].thresholds if one.detector == "mismatch"]
    assert (line.statistic, line.side, line.value) == ("mean", "above", 0.2)


def test_every_detector_is_there_with_its_settings(told: BaselinesView) -> None:
    assert [detector.name for detector in told.detectors] == list(DETECTORS)
    for detector in told.detectors:
        assert detector.settings == asdict(getattr(AgentConfig().detectors, detector.name))
    mismatch = next(detector for detector in told.detectors if detector.name == "mismatch")
    assert (mismatch.role, mismatch.state) == ("signature", "critical")
    assert mismatch.evidence["std_limit"] == 0.2


def test_a_baseline_says_how_much_it_still_needs(client: Client) -> None:
    drive(client, Plant(seed=0), 12)
    [baseline] = signals(client.baselines("run"))["reward_mean"].baselines
    assert (baseline.level, baseline.warming, baseline.settling) == (None, 18, 0)


def test_before_the_first_summary_there_is_none(client: Client, http: httpx.Client) -> None:
    client.register("run")
    view = client.baselines("run")
    assert (view.attempt, view.step, view.signals) == (None, None, [])
    assert {detector.state for detector in view.detectors} == {"not_observed"}
    assert http.get("/v1/jobs/nope/baselines").status_code == 404
