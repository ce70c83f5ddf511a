"""trackio's SQLite file of a project: the table `metrics`, a row a call of `log`, of one run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from trimtab.api.tail import sqlite
from trimtab.api.tail.source import Piece, Place, Row, Skipped, TailError, read_to_end
from trimtab.api.tail.values import numbers, parsed, step_of

COLUMNS = frozenset({"id", "timestamp", "run_name", "step", "metrics"})
"""Of the table, by which it is told."""
_QUERY = (
    f"SELECT id, timestamp, step, CASE WHEN length(metrics) <= {sqlite.LONGEST} THEN metrics END FROM metrics "
    f"WHERE run_name = ? AND id > ? ORDER BY id LIMIT {sqlite.BATCH}"
)


class Trackio:
    """One run of a project: the one that is named, else the newest."""

    kind: ClassVar[str] = "trackio"
    quiet_s: ClassVar[float] = 30.0

    def __init__(self, path: Path, run: str | None = None) -> None:
        self.path, self._run = path, run

    def read(self, place: Place) -> Piece:
        """The rows since `place`."""
        identity = sqlite.identity(self.path)
        with sqlite.opened(self.path) as connection:
            if not sqlite.columns(connection, "metrics") >= COLUMNS:
                raise TailError(f"{self.path}: has no table `metrics` of trackio; give its database, or use --as")
            run = self._run or place.get("run")
            if run is None:
                newest = sqlite.rows_of(connection, "SELECT run_name FROM metrics ORDER BY id DESC LIMIT 1", ())
                if not newest:
                    return Piece(rows=(), place=place)
                (run,) = newest[0]
            last = sqlite.rows_of(connection, "SELECT max(id) FROM metrics", ())[0][0] or 0
            known = {name: place.get(name) for name in ("run", *identity)}
            begun = bool(place) and (known != {"run": run, **identity} or place.get("row", 0) > last)
            after = 0 if begun else place.get("row", 0)
            found = sqlite.rows_of(connection, _QUERY, (run, after))
        skipped = Skipped()
        rows = [Row(step=None, restart=True)] if begun else []
        for _, time, step, text in found:
            try:
                values = numbers(parsed(text or ""), skipped)
            except ValueError:
                skipped.damaged += 1
                continue
            rows.append(Row(step=step_of(step), time=_time(time), values=values))
        row = found[-1][0] if found else after
        more = len(found) == sqlite.BATCH
        return Piece(rows=tuple(rows), place={**identity, "run": run, "row": row}, more=more, skipped=skipped)

    def end(self) -> Place:
        """Behind the newest row."""
        return read_to_end(self)


def _time(text: object) -> float | None:
    """Unix seconds of an ISO time, which is in UTC where it does not say."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
