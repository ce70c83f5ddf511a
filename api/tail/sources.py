"""Every kind of log, and which of them a path is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trimtab.api.tail import mlflow_db, mlflow_files, sqlite, tensorboard, trackio, trainer_state, wandb_log
from trimtab.api.tail.files import reading, unreadable
from trimtab.api.tail.jsonl import JsonLines
from trimtab.api.tail.mlflow_db import MlflowDatabase
from trimtab.api.tail.mlflow_files import MlflowFiles
from trimtab.api.tail.prime_tokens import PrimeTokens
from trimtab.api.tail.source import Source, TailError
from trimtab.api.tail.tensorboard import TensorBoard
from trimtab.api.tail.trackio import Trackio
from trimtab.api.tail.trainer_state import TrainerState
from trimtab.api.tail.wandb import WandbLog

SOURCES: dict[str, Callable[[Path, str | None], Source]] = {
    JsonLines.kind: lambda path, _: JsonLines(path),
    TrainerState.kind: lambda path, _: TrainerState(path),
    TensorBoard.kind: lambda path, _: TensorBoard(path),
    WandbLog.kind: lambda path, _: WandbLog(path),
    MlflowDatabase.kind: lambda path, run: MlflowDatabase(path, run),
    MlflowFiles.kind: lambda path, _: MlflowFiles(path),
    Trackio.kind: lambda path, run: Trackio(path, run),
    PrimeTokens.kind: lambda path, _: PrimeTokens(path),
}
"""One line a kind: its path, and the run in it where there are several."""
_WANDB = ("run-*.wandb", "latest-run/run-*.wandb", "offline-run-*/run-*.wandb", "wandb/latest-run/run-*.wandb")


def open_source(path: Path, kind: str | None = None, run: str | None = None) -> Source:
    """The log at a path, of the kind that is given or else found out.

    Raises:
        TailError: there is no such kind, or what is there is none that is known.
    """
    if kind is not None and kind not in SOURCES:
        raise TailError(f"--as: {kind!r} is none of {', '.join(SOURCES)}")
    try:
        found = (kind, path) if kind is not None and not path.is_dir() else _found(path, kind)
    except OSError as error:
        raise unreadable(path, error) from error
    return SOURCES[found[0]](found[1], run)


def _found(path: Path, kind: str | None) -> tuple[str, Path]:
    if not path.exists():
        raise unreadable(path, FileNotFoundError())
    for name, place in _candidates(path):
        if kind in (None, name):
            return name, place
    if kind is not None:
        return kind, path
    raise TailError(
        f"{path}: holds no log that is known; give a JSONL file, trainer_state.json, a folder of event files, "
        "run-*.wandb, an MLflow run or database, or a trackio database, or force one with --as"
    )


def _candidates(path: Path) -> list[tuple[str, Path]]:
    """What a path may be, the likeliest first."""
    if not path.is_dir():
        return [(_kind_of_file(path), path)]
    found: list[tuple[str, Path]] = []
    if any(tensorboard.MARK in each.name for each in path.iterdir()):
        found.append((TensorBoard.kind, path))
    if path.name == "token_exports" or any(path.glob("step_*/STABLE")):
        found.append((PrimeTokens.kind, path))
    for pattern in _WANDB:
        logs = sorted(path.glob(pattern), key=lambda each: each.stat().st_mtime)
        found += [(WandbLog.kind, logs[-1])] if logs else []
    if (path / mlflow_files.FOLDER).is_dir() and (path / "meta.yaml").is_file():
        found.append((MlflowFiles.kind, path))
    runs = [each.parent for each in path.glob("*/*/meta.yaml") if (each.parent / mlflow_files.FOLDER).is_dir()]
    if runs:
        newest = max(runs, key=lambda each: (each / mlflow_files.FOLDER).stat().st_mtime)
        found.append((MlflowFiles.kind, newest))
    if (path / trainer_state.NAME).is_file() or any(path.glob(f"checkpoint-*/{trainer_state.NAME}")):
        found.append((TrainerState.kind, path))
    for pattern in ("*.db", "*.jsonl"):
        files = sorted(path.glob(pattern))
        if len(files) == 1:
            found.append((_kind_of_file(files[0]), files[0]))
        elif files and not found:
            raise TailError(f"{path}: holds {len(files)} files {pattern}; give one of them, such as {files[0]}")
    return found


def _kind_of_file(path: Path) -> str:
    with reading(path) as file:
        head = file.read(max(len(sqlite.MAGIC), len(wandb_log.MAGIC)))
    if head.startswith(wandb_log.MAGIC) or path.suffix == ".wandb":
        return WandbLog.kind
    if tensorboard.MARK in path.name:
        return TensorBoard.kind
    if path.name == trainer_state.NAME:
        return TrainerState.kind
    if head == sqlite.MAGIC:
        return _kind_of_database(path)
    return JsonLines.kind


def _kind_of_database(path: Path) -> str:
    with sqlite.opened(path) as connection:
        found = sqlite.columns(connection, "metrics")
    if found >= mlflow_db.TABLE.columns:
        return MlflowDatabase.kind
    if found >= trackio.TABLE.columns:
        return Trackio.kind
    raise TailError(f"{path}: is a SQLite file without a table `metrics` that is known; give MLflow's or trackio's")
