"""trainer_state.json, MLflow's two stores and trackio's, and which of them a path is."""

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pytest

from trimtab.api.tail.mlflow_db import MlflowDatabase
from trimtab.api.tail.mlflow_files import MlflowFiles
from trimtab.api.tail.source import Row, TailError
from trimtab.api.tail.sources import SOURCES, open_source
from trimtab.api.tail.trackio import Trackio
from trimtab.api.tail.trainer_state import TrainerState

MLFLOW = (
    "CREATE TABLE metrics (key VARCHAR(250) NOT NULL, value FLOAT NOT NULL, timestamp BIGINT NOT NULL, "
    "run_uuid VARCHAR(32) NOT NULL, step BIGINT NOT NULL, is_nan BOOLEAN NOT NULL, "
    "PRIMARY KEY (key, timestamp, step, run_uuid, value, is_nan))"
)
"""As mlflow 3.17 makes it."""
TRACKIO = (
    "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL, "
    "run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT)"
)
"""As trackio 0.43 makes it: it cannot be installed beside what else is pinned here."""


def database(path: Path, table: str, *, wal: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {'WAL' if wal else 'DELETE'}")
    connection.execute(table)
    connection.commit()
    return connection


def mlflow_rows(connection: sqlite3.Connection, rows: Iterable[tuple[str, float, int, str, int, bool]]) -> None:
    connection.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.commit()


def trackio_rows(connection: sqlite3.Connection, rows: Iterable[tuple[str, int, str]]) -> None:
    for run, step, metrics in rows:
        row = ("id", f"2026-11-30T20:00:{step:02d}+00:00", run, step, metrics)
        connection.execute(
            "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)", row
        )
    connection.commit()


@pytest.mark.parametrize("wal", [True, False])
def test_mlflow_rows_of_one_run_come_in_the_order_of_writing(tmp_path: Path, wal: bool) -> None:
    path = tmp_path / "mlflow.db"
    writer = database(path, MLFLOW, wal=wal)
    mlflow_rows(writer, [("loss", 9.0, 5000, "old", 0, False), ("loss", 0.5, 6000, "new", 0, False)])
    source = MlflowDatabase(path)
    first = source.read({})
    assert first.rows == (Row(step=0, time=6.0, values={"loss": 0.5}),)
    big = 1.7976931348623157e308
    mlflow_rows(writer, [("a", 0.0, 7000, "new", 1, True), ("b", big, 7000, "new", 1, False)])
    mlflow_rows(writer, [("c", -big, 7000, "new", 1, False), ("loss", 1.0, 7000, "another", 3, False)])
    second = source.read(first.place)
    assert [str(row.values) for row in second.rows] == ["{'a': nan}", "{'b': inf}", "{'c': -inf}"]
    assert source.read(second.place).rows == ()
    assert [row.step for row in MlflowDatabase(path, "another").read({}).rows] == [3]
    writer.close()
    assert source.read(second.place).rows == ()


def test_reading_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    writer = database(path, TRACKIO, wal=True)
    trackio_rows(writer, [("run", 0, '{"loss": 1.0}')])
    writer.close()
    before = {each.name: (each.stat().st_mtime_ns, each.stat().st_size) for each in tmp_path.iterdir()}
    assert len(Trackio(path).read({}).rows) == 1
    assert {each.name: (each.stat().st_mtime_ns, each.stat().st_size) for each in tmp_path.iterdir()} == before


def test_trackio_rows_are_read_beside_their_writer(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    writer = database(path, TRACKIO, wal=True)
    trackio_rows(writer, [("old", 0, "{}"), ("run", 0, '{"loss": "NaN", "text": "a", "deep": {"x": 1}}')])
    source = Trackio(path)
    first = source.read({})
    assert [str(row.values) for row in first.rows] == ["{'loss': nan, 'deep/x': 1.0}"]
    assert first.rows[0].time == 1796068800.0
    trackio_rows(
        writer, [("run", 1, "no JSON"), ("run", 2, '{"loss": ' + "1" * (1 << 20) + "}"), ("run", 3, '{"x": 2}')]
    )
    second = source.read(first.place)
    assert second.rows == (Row(step=3, time=1796068803.0, values={"x": 2.0}),)
    assert second.skipped.damaged == 2
    writer.close()


def test_another_database_in_its_place_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    with database(path, TRACKIO, wal=False) as writer:
        trackio_rows(writer, [("run", step, '{"x": 1}') for step in range(5)])
    writer.close()
    place = Trackio(path).read({}).place
    path.rename(tmp_path / "old.db")
    with database(path, TRACKIO, wal=False) as writer:
        trackio_rows(writer, [("run", step, '{"x": 1}') for step in range(9)])
    writer.close()
    rows = Trackio(path).read(place).rows
    assert rows[0].restart
    assert [row.step for row in rows[1:]] == list(range(9))


def test_a_database_that_is_damaged_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with pytest.raises(TailError, match=r"mlflow\.db: cannot be read as SQLite"):
        MlflowDatabase(path).read({})
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE metrics (x)")
    connection.close()
    with pytest.raises(TailError, match=r"other\.db: has no table `metrics` of MLflow"):
        MlflowDatabase(tmp_path / "other.db").read({})
    with pytest.raises(TailError, match="without a table `metrics` that is known"):
        open_source(tmp_path / "other.db")


def test_files_of_mlflow_are_read_as_they_grow(tmp_path: Path) -> None:
    (tmp_path / "metrics" / "train").mkdir(parents=True)
    loss, reward = tmp_path / "metrics" / "loss", tmp_path / "metrics" / "train" / "reward"
    loss.write_text("1000 0.5 0\n2000 nan 1\n3000 0.")
    reward.write_text("1001 1 0\n2001 inf 1\nno line\n")
    source = MlflowFiles(tmp_path)
    first = source.read({})
    assert [(row.step, row.time, str(row.values)) for row in first.rows] == [
        (0, 1.0, "{'loss': 0.5}"),
        (0, 1.001, "{'train/reward': 1.0}"),
        (1, 2.0, "{'loss': nan}"),
        (1, 2.001, "{'train/reward': inf}"),
    ]
    assert first.skipped.damaged == 1
    with loss.open("a") as file:
        file.write("25 2\n")
    assert source.read(first.place).rows == (Row(step=2, time=3.0, values={"loss": 0.25}),)


def test_no_line_of_mlflow_ends_the_reading(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    words = ["\N{SUPERSCRIPT TWO}", "--5", "-1", "1.5", "\u0665", "9" * 400]
    lines = [f"1000 0.5 {word}\n" for word in words] + ["nan 0.5 1\n", "inf 0.5 2\n", "1e999 0.5 3\n", "2000 0.5 4\n"]
    (tmp_path / "metrics" / "loss").write_text("".join(lines))
    rows = MlflowFiles(tmp_path).read({}).rows
    assert [(row.step, row.time) for row in rows] == [(None, 1.0)] * 6 + [(1, None), (2, None), (3, None), (4, 2.0)]


def test_a_text_that_is_none_ends_no_reading_of_a_database(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    writer = database(path, MLFLOW, wal=False)
    writer.execute("INSERT INTO metrics VALUES (CAST(x'6cff' AS TEXT), 0.5, 1000, 'run', 0, 0)")
    mlflow_rows(writer, [("loss", 0.25, 2000, "run", 1, False)])
    writer.close()
    rows = MlflowDatabase(path).read({}).rows
    assert [(row.step, row.values) for row in rows] == [(0, {"l\ufffd": 0.5}), (1, {"loss": 0.25})]


def state(folder: Path, step: int, history: list[dict[str, float]]) -> None:
    checkpoint = folder / f"checkpoint-{step}"
    checkpoint.mkdir(exist_ok=True)
    (checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": history}))


def test_the_newest_trainer_state_adds_its_rows(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": step / 4, "epoch": 0.1} for step in range(10)]
    source = TrainerState(tmp_path)
    assert source.read({}).rows == ()
    state(tmp_path, 4, rows[:5])
    first = source.read({})
    assert [(row.step, row.values["loss"]) for row in first.rows] == [(step, step / 4) for step in range(5)]
    assert source.read(first.place).rows == ()
    state(tmp_path, 8, rows[:9])
    second = source.read(first.place)
    assert [row.step for row in second.rows] == [5, 6, 7, 8]
    state(tmp_path, 6, [*rows[:5], {"step": 5, "loss": 9.0}, {"step": 6, "loss": 9.0}])  # resumed from 4
    third = source.read(second.place)
    assert third.rows == (
        Row(step=None, restart=True),
        Row(step=5, values={"loss": 9.0}),
        Row(step=6, values={"loss": 9.0}),
    )


def test_what_the_real_trainer_writes_is_read(tmp_path: Path) -> None:
    from transformers import TrainerState as Written

    rows = [{"step": step, "loss": 0.5, "grad_norm": float("nan") if step == 2 else 1.0} for step in range(1, 4)]
    (tmp_path / "checkpoint-3").mkdir()
    written = Written(log_history=[*rows, {"step": 3, "reward": None}], global_step=3)
    written.save_to_json(str(tmp_path / "checkpoint-3" / "trainer_state.json"))
    found = open_source(tmp_path).read({}).rows
    assert [(row.step, str(row.values)) for row in found] == [
        (1, "{'grad_norm': 1.0, 'loss': 0.5}"),
        (2, "{'grad_norm': nan, 'loss': 0.5}"),
        (3, "{'grad_norm': 1.0, 'loss': 0.5}"),
        (3, "{}"),  # TRL's mean of no value
    ]


def test_a_trainer_state_that_is_half_there_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text('{"log_history": [{"step": 1, ')
    with pytest.raises(TailError, match="or not whole yet"):
        TrainerState(path).read({})
    path.write_text('{"log_history": 3}')
    with pytest.raises(TailError, match="is no trainer_state"):
        TrainerState(path).read({})


def test_a_path_tells_what_it_is(tmp_path: Path) -> None:
    def holding(name: str, *files: str) -> Path:
        folder = tmp_path / name
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(b":W&B\xe1\xbe\x00" if file.endswith(".wandb") else b"")
        return folder

    run = "offline-run-20261130_1-x/run-x.wandb"
    for folder, kind, path in [
        (holding("a", "events.out.tfevents.1.host.2.0"), "tensorboard", ""),
        (holding("b", run), "wandb", run),
        (holding("c", "wandb/latest-run/run-x.wandb"), "wandb", "wandb/latest-run/run-x.wandb"),
        (holding("d", "checkpoint-5/trainer_state.json"), "trainer_state", ""),
        (holding("e", "metrics.jsonl"), "jsonl", "metrics.jsonl"),
        (holding("f", "0/run/meta.yaml", "0/run/metrics/loss"), "mlflow_files", "0/run"),
    ]:
        source = open_source(folder)
        assert (source.kind, source.path) == (kind, folder / path if path else folder)  # type: ignore[attr-defined]
    two = holding("g", "a.jsonl", "b.jsonl")
    with pytest.raises(TailError, match=r"holds 2 files \*\.jsonl; give one of them, such as .*a\.jsonl"):
        open_source(two)
    with pytest.raises(TailError, match="holds no log that is known"):
        open_source(holding("h", "model.bin"))
    with pytest.raises(TailError, match="is not there"):
        open_source(tmp_path / "none")
    with pytest.raises(TailError, match=f"'x' is none of {', '.join(SOURCES)}"):
        open_source(two, "x")
    assert open_source(two / "a.jsonl", "tensorboard").kind == "tensorboard"
