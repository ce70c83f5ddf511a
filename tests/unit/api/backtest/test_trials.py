"""Runs are judged from their onset on, and what fires by chance is no detection."""

from dataclasses import replace

import pytest

from trimtab.agent.checks import ConfigError
from trimtab.agent.config import AgentConfig, with_settings
from trimtab.api.backtest.conditions import SMALL
from trimtab.api.backtest.scenarios import SCENARIOS, Label
from trimtab.api.backtest.scores import scored
from trimtab.api.backtest.trials import Plan, Trial, bases, trials
from trimtab.api.backtest.watching import Alert

PLAN = Plan(seeds=1, steps=90, onsets=(60, 80), horizon=12, size=SMALL)
CONFIG = AgentConfig()


def judged(*chosen: str, plan: Plan = PLAN, config: AgentConfig = CONFIG) -> dict[tuple[str, int], Trial]:
    return {(one.scenario, one.onset): one for one in trials("healthy", 0, chosen, plan, config)}


def test_a_gross_shift_is_seen_at_either_onset_and_a_nan_in_its_own_step() -> None:
    found = judged("negative -0.2", "NaN in loss")
    assert set(found) == {
        ("healthy", 0),
        *((name, onset) for name in ("negative -0.2", "NaN in loss") for onset in (60, 80)),
    }
    for onset in PLAN.onsets:
        assert found["NaN in loss", onset].delay == 0
        delay = found["negative -0.2", onset].delay
        assert delay is not None
        assert 1 <= delay <= 5
        assert found["negative -0.2", onset].steps == delay + 1


def test_a_run_that_is_not_seen_is_watched_to_the_horizon() -> None:
    _, missed = trials("healthy", 0, ["tail -0.02 ramp"], replace(PLAN, onsets=(60,)), CONFIG)
    assert (missed.delay, missed.steps) == (None, 12)


def test_what_is_harmless_goes_to_its_end_once() -> None:
    found = judged("resume")
    assert [(key, one.steps) for key, one in found.items()] == [(("healthy", 0), 90), (("resume", 60), 30)]


def test_an_alert_that_would_have_come_anyway_is_no_detection() -> None:
    jumpy = with_settings(CONFIG, {"detectors.garbage.limit": 1e-9, "incidents.keep_firing_for": 1})
    found = judged("tail -0.02 ramp", plan=replace(PLAN, steps=300, onsets=(60,), horizon=100), config=jumpy)
    chance = {alert.at for alert in found["healthy", 0].alerts if 60 <= alert.at < 160}
    assert chance
    alerts = found["tail -0.02 ramp", 60].alerts
    assert not chance & {alert.at for alert in alerts if alert.what == "garbage"}


def test_the_runs_that_scenarios_begin_as() -> None:
    assert bases([SCENARIOS["tail -0.2"]]) == ["healthy"]
    assert bases([SCENARIOS["entropy x3 at entropy 2"], SCENARIOS["passes"]]) == ["healthy at entropy 2", "passes"]
    for scenario in SCENARIOS.values():
        assert len(bases([scenario])) == 1


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"onsets": (200, 100)}, "--onsets"),
        ({"onsets": ()}, "--onsets"),
        ({"steps": 200}, "--steps"),
        ({"horizon": 0}, "--horizon"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Plan(**wrong)  # type: ignore[arg-type]


def trial(scenario: str, *at: int, onset: int = 0, seed: int = 0, steps: int = 100, what: str = "reward") -> Trial:
    alerts = tuple(Alert(at=one, what=what, severity="warn") for one in at)
    return Trial(scenario=scenario, seed=seed, onset=onset, steps=steps, alerts=alerts)


def test_scores_count_delays_and_false_alarms_apart() -> None:
    scores = scored(
        [
            trial("healthy", 7, 50),
            trial("healthy", seed=1, steps=300),
            trial("bursts", 3, what="entropy"),
            trial("tail -0.2", 62, onset=60),
            trial("tail -0.2", 69, onset=60, seed=1, what="asymmetry"),
            trial("tail -0.2", onset=80),
        ]
    )
    assert (scores.false_alarms.alarms, scores.false_alarms.steps) == (2, 400)
    assert {what: rate.alarms for what, rate in scores.by_detector.items()} == {"reward": 2}
    early, late = scores.detections
    assert (early.onset, early.delay.worst, early.met, early.seen_by) == (60, 9, False, {"reward": 1, "asymmetry": 1})
    assert (late.onset, late.delay.missed, late.met) == (80, 1, False)
    assert scores.missed_bars == ["tail -0.2"]
    assert [(one.scenario, one.label, one.rate.alarms) for one in scores.quiet] == [
        ("healthy", Label.HEALTHY, 2),
        ("bursts", Label.EITHER, 1),
    ]
