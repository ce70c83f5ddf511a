"""MLflow's SQLite store: the table `metrics`, a row a value, of one run.

New rows are told by SQLite's own row number, which grows. NaN is a flag beside the value 0, and the infinities are the
largest floats there are.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import ClassVar

from trimtab.api.tail import sqlite
from trimtab.api.tail.source import Piece, Place, Row, Skipped, TailError, read_to_end
from trimtab.api.tail.values import number, step_of, time_of

COLUMNS = frozenset({"run_uuid", "key", "value", "timestamp", "step", "is_nan"})
"""Of the table, by which it is told."""
_INFINITE = 1.7976931348623157e308
_QUERY = (
    "SELECT rowid, key, value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? AND rowid > ? ORDER BY rowid"
)


class MlflowDatabase:
    """One run of a store: the one that is named, else the newest that has a metric."""

    kind: ClassVar[str] = "mlflow"
    quiet_s: ClassVar[float] = 30.0

    def __init__(self, path: Path, run: str | None = None) -> None:
        self.path, self._run = path, run

    def read(self, place: Place) -> Piece:
        """The values since `place`, each a row."""
        identity = sqlite.identity(self.path)
        with sqlite.opened(self.path) as connection:
            if not sqlite.columns(connection, "metrics") >= COLUMNS:
                raise TailError(f"{self.path}: has no table `metrics` of MLflow; give its database, or use --as")
            run = self._run or place.get("run")
            if run is None:
                newest = sqlite.rows_of(connection, "SELECT run_uuid FROM metrics ORDER BY rowid DESC LIMIT 1", ())
                if not newest:
                    return Piece(rows=(), place=place)
                (run,) = newest[0]
            last = sqlite.rows_of(connection, "SELECT max(rowid) FROM metrics", ())[0][0] or 0
            known = {name: place.get(name) for name in ("run", *identity)}
            begun = bool(place) and (known != {"run": run, **identity} or place.get("row", 0) > last)
            after = 0 if begun else place.get("row", 0)
            found = sqlite.rows_of(connection, f"{_QUERY} LIMIT {sqlite.BATCH}", (run, after))
        skipped = Skipped()
        rows = [Row(step=None, restart=True)] if begun else []
        for _, key, value, time, step, is_nan in found:
            read = math.nan if is_nan else _number(value)
            if read is None or not isinstance(key, str):
                skipped.not_numbers += 1
                continue
            when = time_of(time)
            rows.append(Row(step=step_of(step), time=None if when is None else when / 1000, values={key: read}))
        row = found[-1][0] if found else after
        more = len(found) == sqlite.BATCH
        return Piece(rows=tuple(rows), place={**identity, "run": run, "row": row}, more=more, skipped=skipped)

    def end(self) -> Place:
        """Behind the newest value."""
        return read_to_end(self)


def _number(value: object) -> float | None:
    read = number(value)
    return read if read is None or abs(read) < _INFINITE else math.copysign(math.inf, read)
