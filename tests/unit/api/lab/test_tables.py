"""Rows of figures that were made up."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import pytest
from tiny_lab import tiny_lab

from trimtab.api.lab.cells import Lab, load_lab
from trimtab.api.lab.figures import Figures, Series
from trimtab.api.lab.plots import plots
from trimtab.api.lab.report import html
from trimtab.api.lab.tables import MEASURES, as_json, comma_separated, markdown, rows

BY_NAME = {measure.name: measure for measure in MEASURES}


def made_up(lab: Lab, pattern: str, reward: float, *, onset: int | None = None, spikes: int = 0) -> Figures:
    (cell,) = lab.chosen(pattern)
    nothing = (None, None, None)
    names = [name for name in Series.__dataclass_fields__ if name != "reward"]
    return Figures(
        cell=cell,
        reward_final=reward,
        reward_eval_bf16=None,
        reward_eval_sampler=0.5,
        entropy_final=0.1,
        mismatch_start=math.inf,
        mismatch_final=0.2,
        clip_negative_early=0.1,
        clip_positive_early=0.0,
        gradient_spikes=spikes,
        onset_step=onset,
        recovered=False,
        first_alert_step=None,
        first_action_step=None,
        seconds=1.0,
        series=Series(reward=(0.1, 0.2, reward), **dict.fromkeys(names, nothing)),
    )


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return load_lab(tiny_lab(tmp_path))


def results(lab: Lab) -> list[Figures]:
    return [
        made_up(lab, "bf16/none/s0", 0.9, spikes=1),
        made_up(lab, "bf16/none/s1", 0.7, spikes=2),
        made_up(lab, "nvfp4/centering@8/s0", 0.2, onset=7),
    ]


def test_a_row_is_the_mean_and_the_spread_of_its_seeds(lab: Lab) -> None:
    first, second = rows(lab, results(lab))
    assert (first.label, second.label) == ("bf16 / none", "NVFP4 / centering, at step 8")
    assert first.told(BY_NAME["reward_final"]) == "0.800 ± 0.141"
    assert first.told(BY_NAME["gradient_spikes"]) == "1.5 ± 0.7"
    assert first.told(BY_NAME["collapsed"]) == "0 of 2"
    assert first.told(BY_NAME["reward_eval_bf16"]) == "-"
    assert first.told(BY_NAME["mismatch_start"]) == "inf"
    assert second.told(BY_NAME["reward_final"]) == "0.200"
    assert second.told(BY_NAME["collapsed"]) == "1 of 1"


def test_what_is_written_says_the_same(lab: Lab) -> None:
    table = rows(lab, results(lab))
    content = json.loads(as_json(lab, table, {"nvfp4/none/s0": "<b>no</b>"}))
    assert content["rows"][0]["mean"]["reward_final"] == pytest.approx(0.8)
    assert content["rows"][0]["mean"]["mismatch_start"] == "inf"
    assert content["rows"][1]["seeds"]["0"]["onset_step"] == 7
    lines = list(csv.DictReader(io.StringIO(comma_separated(table))))
    assert [(line["at"], line["seed"]) for line in lines] == [
        ("", "0"),
        ("", "1"),
        ("", "mean"),
        ("", "sd"),
        ("8", "0"),
        ("8", "mean"),
        ("8", "sd"),
    ]
    assert [line["collapsed"] for line in lines[:2]] == ["0", "0"]
    assert "| NVFP4 / centering, at step 8 | s0: 0.200, - |  |" in markdown(table, {})
    assert "failed" not in markdown(table, {})
    assert "1 failed, and are missing above:\n\n- nvfp4/none/s0: it is so" in markdown(
        table, {"nvfp4/none/s0": "it\nis so"}
    )


def test_the_report_tells_failures_and_draws_what_there_is(lab: Lab) -> None:
    table = rows(lab, results(lab))
    text = html(lab, table, plots(table), [], {"nvfp4/none/s0": "<b>no</b>"})
    assert "1 failed, and are missing below" in text
    assert "&lt;b&gt;no&lt;/b&gt;" in text
    assert "<b>no</b>" not in text
    assert text.count("data:image/png;base64,") == 3
    assert "3 of 8 runs" in text


def test_a_lab_of_which_nothing_is_done(lab: Lab) -> None:
    assert "0 of 8 runs" in html(lab, [], {}, [], {})
    assert comma_separated([]).startswith("at,seed,")
