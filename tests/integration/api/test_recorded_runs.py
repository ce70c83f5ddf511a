"""The runs that are shipped: what failed was seen in time, what did not was left in peace."""

import json
from pathlib import Path

import pytest

from trimtab.api.backtest.labels import LabelledRun, labelled
from trimtab.api.backtest.recorded import RunScore, scored_run, scored_runs
from trimtab.api.backtest.scenarios import Label
from trimtab.api.ledgers import recorded_in

LEDGERS = Path(__file__).resolve().parents[2] / "data" / "ledgers"
RUNS = labelled(LEDGERS)


@pytest.fixture(scope="module")
def scores() -> dict[str, RunScore]:
    return {run.file: scored_run(LEDGERS, run, {}) for run in RUNS}


def rewards(run: LabelledRun) -> list[float]:
    entries = recorded_in(LEDGERS / run.file, run.job).entries
    return [json.loads(entry.payload)["scalars"]["reward_mean"] for entry in entries]


def test_there_are_enough_of_each_kind() -> None:
    labels = [run.label for run in RUNS]
    assert len(RUNS) >= 12
    assert labels.count(Label.HEALTHY) >= 8
    assert labels.count(Label.FAILING) >= 5
    for label in (Label.HEALTHY, Label.FAILING):
        formats = " ".join(run.format for run in RUNS if run.label is label)
        assert "BF16" in formats
        assert "NVFP4" in formats
        assert "FP8" in formats or "E5M2" in formats
    assert {run.file for run in RUNS} == {path.name for path in LEDGERS.glob("*.gz")}


def test_the_folder_stays_small() -> None:
    sizes = [path.stat().st_size for path in LEDGERS.iterdir()]
    assert max(sizes) < 400_000
    assert sum(sizes) < 4_000_000


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.file.partition(".")[0])
def test_a_label_says_where_half_of_the_reward_was_lost(run: LabelledRun) -> None:
    """By plain Python on the records: the first mean of five below half of the highest so far."""
    found, values, peak = None, rewards(run), 0.0
    for last in range(4, len(values)):
        mean = sum(values[last - 4 : last + 1]) / 5
        peak = max(peak, mean)
        if mean < peak / 2:
            found = last
            break
    assert found == run.half
    assert (run.half is None) or run.label is Label.FAILING


@pytest.mark.parametrize("run", [run for run in RUNS if run.label is Label.FAILING], ids=lambda run: run.file)
def test_what_fails_is_seen_before_half_of_its_reward_is_lost(run: LabelledRun, scores: dict[str, RunScore]) -> None:
    assert scores[run.file].in_time, scores[run.file].alerts


@pytest.mark.parametrize("run", [run for run in RUNS if run.label is Label.HEALTHY], ids=lambda run: run.file)
def test_what_is_healthy_is_silent(run: LabelledRun, scores: dict[str, RunScore]) -> None:
    assert scores[run.file].alerts == ()


def test_the_scores_of_all_of_them(scores: dict[str, RunScore]) -> None:
    found = scored_runs(list(scores.values()))
    failing = [run for run in RUNS if run.label is Label.FAILING]
    assert found.delay is not None
    assert (found.delay.runs, found.delay.missed, found.in_time) == (len(failing), 0, len(failing))
    assert (found.false_alarms.alarms, found.by_detector) == (0, {})
    healthy = [run for run in RUNS if run.label is Label.HEALTHY]
    expected = sum(len(rewards(run)) for run in healthy) + sum(run.cause for run in failing)
    assert found.false_alarms.steps == expected


def test_other_settings_are_scored_on_the_same_runs() -> None:
    (run,) = [run for run in RUNS if run.file == "cliff-bf16.jsonl.gz"]
    loud = scored_run(LEDGERS, run, {"detectors": {"garbage": {"limit": 1e-6}}})
    assert {alert.what for alert in loud.alerts} == {"garbage"}
    assert loud.false == loud.alerts
