"""Table, terminal picture, PNG and summary of outcomes that were made up."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from trimtab.api.demo.outcome import HELD_STEPS, ControlChange, RunOutcome, _recovery, _smooth
from trimtab.api.demo.perform import clear
from trimtab.api.demo.picture import draw
from trimtab.api.demo.plan import plan
from trimtab.api.demo.report import report, write_summary
from trimtab.trainer.scenarios import SCENARIOS


def outcome(name: str, seed: int = 0, scenario: str = "cliff", **changes: object) -> RunOutcome:
    values: dict[str, object] = {
        "scenario": scenario,
        "name": name,
        "title": {"bf16": "BF16 reference", "agent": "NVFP4, agent in auto"}.get(name, name),
        "seed": seed,
        "job": f"demo-{scenario}-{name}-s{seed}",
        "reward_final": 0.9 + 0.02 * seed,
        "reward_eval_bf16": 0.95,
        "entropy_final": 0.01,
        "garbage_final": 0.0,
        "mismatch_final": 0.4,
        "first_alert_step": None,
        "alert": "",
        "first_action_step": None,
        "steps_to_recover": None,
        "controls_timeline": (),
        "rewards": tuple(min(1.0, 0.3 + 0.01 * step) for step in range(110)),
    }
    return RunOutcome(**(values | changes))  # type: ignore[arg-type]


CHANGE = ControlChange(step=7, control="centering", before=False, after=True, by="agent", reason="mismatch std 0.51")
ACTED = {"first_alert_step": 4, "alert": "mismatch", "first_action_step": 5, "controls_timeline": (CHANGE,)}


def printed(runs: list[RunOutcome], width: int = 100) -> str:
    console = Console(width=width, record=True, file=StringIO())
    console.print(report(runs))
    return console.export_text()


def test_table_has_a_row_a_run_and_says_what_was_done() -> None:
    text = printed([outcome("bf16"), outcome("agent", **ACTED, steps_to_recover=12)])
    row = next(line for line in text.splitlines() if line.startswith("NVFP4, agent in auto"))
    assert row.split()[4:] == ["0.90", "0.95", "0.01", "0.00", "0.40", "4", "5", "12"]
    assert "step 7 NVFP4, agent in auto: centering=True: mismatch std 0.51" in text
    assert SCENARIOS["cliff"].note in " ".join(text.split())


def test_several_seeds_show_mean_and_sample_deviation_and_how_many_acted() -> None:
    runs = [outcome("agent", seed=0, **ACTED), outcome("agent", seed=1), outcome("agent", seed=2, **ACTED)]
    lines = printed(runs, 80).splitlines()
    index = next(i for i, line in enumerate(lines) if line.startswith("NVFP4, agent in auto"))
    assert lines[index].split()[4:7] == ["0.92", "0.95", "0.01"]
    assert lines[index + 1].split()[:2] == ["±0.02", "±0.00"]
    assert "2 of 3" in lines[index + 1]


def test_the_table_fits_a_terminal_of_80_columns() -> None:
    calibrated = outcome("calibrated", title="NVFP4, calibrated clip only")
    text = printed([outcome("bf16"), calibrated, outcome("agent", **ACTED, steps_to_recover=12)], 80)
    assert "…" not in text
    assert any(line.startswith("NVFP4, agent in auto") and line.rstrip().endswith("12") for line in text.splitlines())


def test_terminal_picture_marks_alert_and_action() -> None:
    lines = printed([outcome("agent", **ACTED)]).splitlines()
    marks = next(line for line in lines if line.strip().replace(" ", "") == "aA")
    assert marks.index("a") == 4 * 44 // 110
    assert marks.index("A") == 5 * 44 // 110


def test_picture_is_a_png(tmp_path: Path) -> None:
    runs = [outcome("bf16"), outcome("agent", **ACTED), outcome("bf16", scenario="switch")]
    draw(tmp_path / "demo.png", runs)
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_summary_holds_every_figure(tmp_path: Path) -> None:
    runs = [outcome("bf16"), outcome("agent", **ACTED)]
    assert write_summary(tmp_path / "summary.json", runs)["schema"] == 1
    content = json.loads((tmp_path / "summary.json").read_text())
    assert content["notes"] == {"cliff": SCENARIOS["cliff"].note}
    assert [run["name"] for run in content["runs"]] == ["bf16", "agent"]
    assert content["runs"][1]["controls_timeline"] == [
        {
            "step": 7,
            "control": "centering",
            "before": False,
            "after": True,
            "by": "agent",
            "reason": "mismatch std 0.51",
        }
    ]


@pytest.mark.parametrize(("low_until", "expected"), [(0, 0), (20, 20 - 5), (200, None), (100 - HELD_STEPS + 1, None)])
def test_recovery_is_the_first_step_of_a_lasting_return(low_until: int, expected: int | None) -> None:
    reference = [1.0] * 100
    rewards = [0.1 if step < low_until else 0.9 for step in range(100)]
    assert _recovery(rewards, reference, 5) == expected


def test_a_short_return_is_no_recovery() -> None:
    rewards = [0.9] * (HELD_STEPS - 1) + [0.1] * 20
    assert _recovery(rewards, [1.0] * len(rewards), 0) is None


def test_smoothing_is_the_mean_of_the_newest_five() -> None:
    assert _smooth([1.0, 0.0, 0.0, 0.0, 0.0, 5.0]) == [1.0, 0.5, pytest.approx(1 / 3), 0.25, 0.2, 1.0]


def test_plan_names_every_run_once(tmp_path: Path) -> None:
    runs = plan(tmp_path, seeds=2, quick=False)
    assert len({run.job for run in runs}) == len(runs) == 2 * sum(len(s.runs) for s in SCENARIOS.values())
    assert {run.config.seed for run in runs} == {0, 1}
    quick = plan(tmp_path, seeds=1, quick=True)
    assert [run.job for run in quick] == ["demo-cliff-bf16-s0", "demo-cliff-unattended-s0", "demo-cliff-agent-s0"]
    restricted = next(run for run in runs if run.run.name == "calibrated")
    assert restricted.policy == {"policy": {"allow": ["calibrated_clipping"]}}


def test_clearing_takes_away_only_what_a_demo_left(tmp_path: Path) -> None:
    runs = plan(tmp_path, seeds=1, quick=True)
    theirs = [tmp_path / "agent.db", tmp_path / "agent.db-wal", runs[0].folder / "steps.jsonl"]
    mine = [tmp_path / "agent.db.backup", tmp_path / "cliff" / "notes.txt", tmp_path / "summary.old"]
    for path in (*theirs, *mine):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    clear(tmp_path, runs)
    assert [path.exists() for path in theirs] == [False] * 3
    assert [path.exists() for path in mine] == [True] * 3
