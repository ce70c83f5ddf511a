"""`trimtab demo` as a newcomer runs it: the collapses, the rescues over HTTP, and the replay of every decision."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Runs = dict[tuple[str, str], dict[str, Any]]

BARS = {
    # (scenario, run): least and most reward under its own sampler, least and most evaluated in BF16. One seed on any
    # processor, whose sums round in their own order; the means over five seeds are in docs/benchmarks.md.
    ("cliff", "bf16"): (0.97, 1.0, 0.98, 1.0),
    ("cliff", "unattended"): (0.0, 0.20, 0.0, 0.25),
    ("cliff", "agent"): (0.90, 1.0, 0.97, 1.0),
    ("cliff", "calibrated"): (0.65, 1.0, 0.95, 1.0),
    ("cliff", "clean"): (0.95, 1.0, 0.93, 1.0),
    ("switch", "bf16"): (0.97, 1.0, 0.98, 1.0),
    ("switch", "unattended"): (0.0, 0.25, 0.0, 0.30),
    ("switch", "agent"): (0.80, 1.0, 0.97, 1.0),
}
CAUSES = {"cliff": 0, "switch": 12}
FAILING = [key for key in BARS if key[1] in ("unattended", "agent", "calibrated")]
HEALTHY = [key for key in BARS if key not in FAILING]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Runs]:
    """Folder and runs of one demo."""
    out = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "trimtab", "demo", "--json", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary == json.loads((out / "summary.json").read_text())
    return out, {(run["scenario"], run["name"]): run for run in summary["runs"]}


@pytest.mark.parametrize("key", BARS, ids="-".join)
def test_rewards(demo: tuple[Path, Runs], key: tuple[str, str]) -> None:
    run = demo[1][key]
    least, most, least_in_bf16, most_in_bf16 = BARS[key]
    assert least <= run["reward_final"] <= most
    assert least_in_bf16 <= run["reward_eval_bf16"] <= most_in_bf16


@pytest.mark.parametrize("key", HEALTHY, ids="-".join)
def test_a_healthy_run_is_left_in_peace(demo: tuple[Path, Runs], key: tuple[str, str]) -> None:
    run = demo[1][key]
    assert (run["first_alert_step"], run["first_action_step"]) == (None, None)
    assert run["controls_timeline"] == []


@pytest.mark.parametrize("key", FAILING, ids="-".join)
def test_a_failing_run_is_seen_within_five_steps_of_the_cause(demo: tuple[Path, Runs], key: tuple[str, str]) -> None:
    seen = demo[1][key]["first_alert_step"]
    assert CAUSES[key[0]] <= seen <= CAUSES[key[0]] + 5


def changes(run: dict[str, Any]) -> set[tuple[str, Any, str]]:
    return {(change["control"], change["after"], change["by"]) for change in run["controls_timeline"]}


def test_what_was_toggled(demo: tuple[Path, Runs]) -> None:
    _, runs = demo
    centered = {("ratio_reference", "recomputed", "agent"), ("centering", True, "agent")}
    switched = {("sampler_format", "nvfp4", "run")}
    assert changes(runs["cliff", "unattended"]) == set()
    assert changes(runs["cliff", "agent"]) == centered
    assert changes(runs["cliff", "calibrated"]) == {("clip_mode", "calibrated", "agent")}
    assert changes(runs["switch", "unattended"]) == switched
    assert changes(runs["switch", "agent"]) == switched | centered
    assert all(change["reason"] for run in runs.values() for change in run["controls_timeline"])


def test_every_decision_is_replayed_exactly(demo: tuple[Path, Runs]) -> None:
    out, runs = demo
    for run in runs.values():
        command = [sys.executable, "-m", "trimtab", "replay", str(out / "agent.db"), "--job", run["job"], "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


def test_it_leaves_its_picture(demo: tuple[Path, Runs]) -> None:
    out, _ = demo
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
