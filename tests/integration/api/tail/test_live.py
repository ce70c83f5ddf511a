"""A log that the real library is writing, and a reader that is killed again and again: every record once."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from api_runs import trimtab
from log_writers import logged, writing

from trimtab.api.service import Service
from trimtab.storage.codec import SUMMARY

NAMES = {"reward": "reward_mean", "completions/mean_length": "length_mean"} | {
    "completions/clipped_ratio": "truncated_fraction",
    "frac_reward_zero_std": "zero_variance_fraction",
}
OWN = ("loss", "grad_norm", "entropy")


def expected(step: int) -> dict[str, float]:
    """What the agent should have of a step: keys with the prefix that both loggers give Hugging Face's metrics."""
    values = logged(step)
    return {NAMES.get(key, key if key in OWN else f"train/{key}"): value for key, value in values.items()}


def stored(service: Service, job: str) -> list[tuple[int, int, dict[str, float]]]:
    """Attempt, step and scalars of every summary in the job's ledger, in its order."""
    found = [SUMMARY.decode(entry.payload) for entry in service.store.recorded(job).entries]
    return [(one.attempt, one.step, one.scalars) for one in found]


def tailing(path: Path, job: str, url: str, cursor: Path, *more: str) -> list[str]:
    words = ["tail", str(path), "--job", job, "--url", url, "--cursor", str(cursor), "--poll", "0.05", *more]
    return [sys.executable, "-c", "from trimtab.api.cli import main; main()", *words]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "library"), [("mlflow", "mlflow"), ("mlflow_files", "mlflow"), ("trackio", "trackio")]
)
def test_a_store_is_read_beside_its_writer(kind: str, library: str, tmp_path: Path, service: Service, url: str) -> None:
    pytest.importorskip(library)
    folder, cursor, steps = tmp_path / "logs", tmp_path / "cursor.json", 60
    with writing(kind, folder, steps, 0.01) as writer:
        while writer.poll() is None:
            if any(folder.rglob("*.db")) or any(folder.rglob("metrics/*")):
                trimtab(*tailing(folder, kind, url, cursor, "--quiet", "1000")[3:], "--once", check=False)
        assert writer.returncode == 0, (folder / "writer.err").read_text()
    trimtab(*tailing(folder, kind, url, cursor, "--once")[3:])
    found = stored(service, kind)
    assert {step for _, step, _ in found} == set(range(steps))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "steps", "pause"), [("wandb", 1200, 0.01), ("tensorboard", 1200, 0.01)])
def test_every_record_comes_once_though_the_reader_is_killed(
    kind: str, steps: int, pause: float, tmp_path: Path, service: Service, url: str
) -> None:
    pytest.importorskip(kind)
    folder, cursor = tmp_path / "logs", tmp_path / "cursor.json"
    kills, seen = 0, -1
    with writing(kind, folder, steps, pause) as writer:
        while writer.poll() is None or kills < 3:
            environment = {**os.environ, "NO_COLOR": "1"}
            command = tailing(folder, kind, url, cursor)
            with subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
            ) as tail:
                until = time.monotonic() + 20
                while time.monotonic() < until and writer.poll() is None:  # kill it in the middle of its work
                    rows = json.loads(cursor.read_text())["assembly"]["rows"] if cursor.exists() else -1
                    if rows > seen:
                        seen = rows
                        break
                    time.sleep(0.01)
                tail.kill()
            kills += 1
    assert writer.returncode == 0, (folder / "writer.err").read_text()
    assert kills >= 3
    done = trimtab(*tailing(folder, kind, url, cursor, "--once")[3:])
    assert "observe only (read from logs)" in done.stdout
    found = stored(service, kind)
    assert [step for _, step, _ in found] == list(range(steps))
    assert len({attempt for attempt, _, _ in found}) == 1
    assert [scalars for _, _, scalars in found] == [expected(step) for step in range(steps)]
    assert json.loads(cursor.read_text())["outbox"] == []
    assert json.loads(cursor.read_text())["counts"]["refused"] == service.store.quarantined(kind) == 0
    state = service.state(kind)
    assert state.reported is not None
    assert state.reported.log is not None
    assert (state.reported.log.source, state.reported.log.framework) == (kind, "trl")
    assert state.reported.log.lag_seconds is not None
