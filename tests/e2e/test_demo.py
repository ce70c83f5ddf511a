"""`trimtab demo --quick` as a newcomer runs it: the collapse, the rescue over HTTP, and the replay of its decisions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Folder and runs, by name, of one quick demo."""
    out = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "trimtab", "demo", "--quick", "--json", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary == json.loads((out / "summary.json").read_text())
    return out, {run["name"]: run for run in summary["runs"]}


def test_the_reference_learns_and_nothing_is_alerted(demo: tuple[Path, dict[str, Any]]) -> None:
    _, runs = demo
    assert runs["bf16"]["reward_final"] >= 0.97
    assert runs["bf16"]["reward_eval_bf16"] >= 0.98
    assert runs["bf16"]["first_alert_step"] is None
    assert runs["bf16"]["controls_timeline"] == []


def test_unattended_it_falls_to_chance_though_it_was_seen(demo: tuple[Path, dict[str, Any]]) -> None:
    _, runs = demo
    assert runs["unattended"]["reward_final"] <= 0.20
    assert runs["unattended"]["reward_eval_bf16"] <= 0.25
    assert runs["unattended"]["first_alert_step"] <= 5
    assert runs["unattended"]["first_action_step"] is None
    assert runs["unattended"]["controls_timeline"] == []


def test_with_the_agent_it_recovers(demo: tuple[Path, dict[str, Any]]) -> None:
    _, runs = demo
    assert runs["agent"]["reward_final"] >= 0.93
    assert runs["agent"]["reward_eval_bf16"] >= 0.98
    assert runs["agent"]["first_alert_step"] <= 5
    changes = {(change["control"], change["after"], change["by"]) for change in runs["agent"]["controls_timeline"]}
    assert changes == {("ratio_reference", "recomputed", "agent"), ("centering", True, "agent")}


def test_its_decisions_are_replayed_exactly(demo: tuple[Path, dict[str, Any]]) -> None:
    out, runs = demo
    for run in runs.values():
        command = [sys.executable, "-m", "trimtab", "replay", str(out / "agent.db"), "--job", run["job"], "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


def test_it_leaves_its_picture(demo: tuple[Path, dict[str, Any]]) -> None:
    out, _ = demo
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
