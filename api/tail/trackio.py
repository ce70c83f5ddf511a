"""trackio's SQLite file of a project: the table `metrics`, a row a call of `log`, of one run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from trimtab.api.tail import sqlite
from trimtab.api.tail.source import Piece, Place, Row, Skipped, read_to_end
from trimtab.api.tail.values import numbers, parsed, step_of

TABLE = sqlite.Table(
    program="trackio",
    columns=frozenset({"id", "timestamp", "run_name", "step", "metrics"}),
    run="run_name",
    number="id",
    select=f"timestamp, step, CASE WHEN length(metrics) <= {sqlite.LONGEST} THEN metrics END",
)


class Trackio:
    """One run of a project: the one that is named, else the newest."""

    kind: ClassVar[str] = "trackio"
    quiet_s: ClassVar[float] = 30.0

    def __init__(self, path: Path, run: str | None = None) -> None:
        self.path, self._run = path, run

    def read(self, place: Place) -> Piece:
        """The rows since `place`."""
        return sqlite.read_run(self.path, place, self._run, TABLE, _row)

    def end(self) -> Place:
        """Behind the newest row."""
        return read_to_end(self)


def _row(selected: Sequence[Any], skipped: Skipped) -> Row | None:
    time, step, text = selected
    try:
        values = numbers(parsed(text or ""), skipped)
    except ValueError:
        skipped.damaged += 1
        return None
    return Row(step=step_of(step), time=_time(time), values=values)


def _time(text: object) -> float | None:
    """Unix seconds of an ISO time, which is in UTC where it does not say."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
