"""MLflow's SQLite store: the table `metrics`, a row a value, of one run.

New rows are told by SQLite's own row number, which grows. NaN is a flag beside the value 0, and the infinities are the
largest floats there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from trimtab.api.tail import sqlite
from trimtab.api.tail.source import Piece, Place, Row, Skipped, read_to_end
from trimtab.api.tail.values import number, step_of, time_of

TABLE = sqlite.Table(
    program="MLflow",
    columns=frozenset({"run_uuid", "key", "value", "timestamp", "step", "is_nan"}),
    run="run_uuid",
    number="rowid",
    select="key, value, timestamp, step, is_nan",
)
_INFINITE = 1.7976931348623157e308


class MlflowDatabase:
    """One run of a store: the one that is named, else the newest that has a metric."""

    kind: ClassVar[str] = "mlflow"
    quiet_s: ClassVar[float] = 30.0

    def __init__(self, path: Path, run: str | None = None) -> None:
        self.path, self._run = path, run

    def read(self, place: Place) -> Piece:
        """The values since `place`, each a row."""
        return sqlite.read_run(self.path, place, self._run, TABLE, _row)

    def end(self) -> Place:
        """Behind the newest value."""
        return read_to_end(self)


def _row(selected: Sequence[Any], skipped: Skipped) -> Row | None:
    key, value, time, step, is_nan = selected
    read = math.nan if is_nan else _number(value)
    if read is None or not isinstance(key, str):
        skipped.not_numbers += 1
        return None
    when = time_of(time)
    return Row(step=step_of(step), time=None if when is None else when / 1000, values={key: read})


def _number(value: object) -> float | None:
    read = number(value)
    return read if read is None or abs(read) < _INFINITE else math.copysign(math.inf, read)
