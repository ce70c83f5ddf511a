"""`trimtab tail`: what a person gives and is told."""

import os
import tempfile
from pathlib import Path

import pytest
from api_runs import trimtab_here
from tail_runs import summaries, trl_row, write_rows

from trimtab.api.service import Service

Said = pytest.CaptureFixture[str]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    write_rows(path, [trl_row(step) for step in range(5)])
    return path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_it_reads_once_says_what_it_is_and_goes_on(
    log: Path, url: str, service: Service, home: Path, capsys: Said
) -> None:
    first = trimtab_here(capsys, "tail", log, "--job", "run", "--url", url, "--once")
    assert first.returncode == 0
    lines = first.stdout.splitlines()
    assert lines[0] == f"job run: jsonl {log} -> {url}"
    assert lines[1] == (
        "observe only (read from logs): nothing in the job can be changed, and what its logger hides is not seen"
    )
    assert lines[2].startswith("5 steps (5 rows), step 4 of attempt ")
    assert lines[2].endswith(", trl, the log does not say when")
    assert (home / "trimtab" / "tail" / "run.json").is_file()
    write_rows(log, [trl_row(step) for step in range(5, 7)])
    second = trimtab_here(capsys, "tail", log, "--job", "run", "--url", url, "--once")
    assert second.stdout.splitlines()[2].startswith("goes on behind 5 steps, attempt ")
    assert [one.step for one in summaries(service)] == list(range(7))


def test_status_says_observe_only_everywhere(log: Path, url: str, capsys: Said) -> None:
    write_rows(log, [trl_row(step, time=1e9) for step in range(5, 30)])
    write_rows(log, [trl_row(step, entropy=None) for step in range(30, 32)])
    trimtab_here(capsys, "tail", log, "--job", "run", "--url", url, "--once")
    listed = trimtab_here(capsys, "status", "--url", url).stdout
    assert "observe (logs)" in listed
    assert "observe only (read from logs): run" in listed
    told = trimtab_here(capsys, "status", "run", "--url", url).stdout
    assert "observe only (read from logs): jsonl, keys of trl; newest step read when, it does not say" in told
    assert "sampling/importance_sampling_ratio/max: >=3 (censored)" in told
    assert "firing since step 30: vanished: entropy is missing from the log" in told
    assert "overrides" not in told
    shown = trimtab_here(capsys, "signals", "run", "sampling/importance_sampling_ratio/max", "--url", url).stdout
    assert ">=3 (censored)" in shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--job", "a b"), "error: job: 'a b' must be 1 to 128 letters"),
        (("--job", "run", "--framework", "x"), "error: --framework: 'x' is none of trl, verl"),
        (("--job", "run", "--as", "x"), "error: --as: 'x' is none of jsonl, trainer_state"),
        (("--job", "run", "--as", "wandb"), "begins with b'{\"st' and not b':W&B': give a file run-*.wandb"),
        (("--job", "run", "--as", "mlflow"), "cannot be read as SQLite"),
        (("--job", "run", "--url", "x"), "error: url: 'x' has no host"),
        (("--job", "run", "--token", "a b"), "error: token: "),
        (("--job", "run", "--cursor", "/proc/none/x"), "error: --cursor: /proc/none/x cannot be written"),
    ],
)
def test_a_mistake_is_one_line(words: tuple[str, ...], told: str, log: Path, url: str, capsys: Said) -> None:
    given = (*(("--url", url) if "--url" not in words else ()), *words)
    done = trimtab_here(capsys, "tail", log, "--once", *given)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_missing_log_is_named(tmp_path: Path, url: str, capsys: Said) -> None:
    done = trimtab_here(capsys, "tail", tmp_path / "none.jsonl", "--job", "run", "--url", url, "--once")
    assert done.returncode == 2
    assert "none.jsonl: is not there (any more); check the path" in done.stderr


def test_a_log_of_another_user_is_named(url: str, capsys: Said) -> None:
    before = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "run.jsonl"
        path.touch(mode=0)
        Path(name).chmod(0o755)
        if before == 0:
            os.seteuid(65534)
        try:
            done = trimtab_here(capsys, "tail", path, "--job", "run", "--url", url, "--once")
        finally:
            os.seteuid(before)
    assert done.returncode == 2
    assert "run.jsonl: may not be read by this user; run the tail as the job's user" in done.stderr


def test_an_agent_that_is_away_is_told_and_nothing_is_lost(log: Path, url: str, service: Service, capsys: Said) -> None:
    away = trimtab_here(capsys, "tail", log, "--job", "run", "--url", "http://127.0.0.1:9", "--once")
    assert away.returncode == 1
    assert "nothing answers at http://127.0.0.1:9: 5 steps wait, and the log keeps the rest" in away.stdout
    there = trimtab_here(capsys, "tail", log, "--job", "run", "--url", url, "--once")
    assert there.returncode == 0
    assert [one.step for one in summaries(service)] == list(range(5))
