"""Roll-ups of signals in the database, on a connection whose transaction the caller holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from sqlalchemy import Connection, RowMapping, select, tuple_

from trimtab.storage import queries
from trimtab.storage.inserts import upsert
from trimtab.storage.packing import compressed, decompressed, unpacked_floats
from trimtab.storage.rollups import LEVELS, SignalRollup, first_of
from trimtab.storage.signal_sets import SignalSets
from trimtab.storage.tables import LedgerRow, ObservationRow, SignalRollupRow

Key = tuple[int, int, int]
"""Attempt, level and first step of a stretch."""
Names = Mapping[int, Sequence[str]]
"""Sets of signals by id."""


def worked_out(connection: Connection, job_id: int, after: int, last: int) -> dict[Key, SignalRollup]:
    """The signals of the ledger rows behind `after`, up to `last`, rolled up at every level."""
    columns = (ObservationRow.attempt, ObservationRow.set_id, ObservationRow.step, ObservationRow.values)
    of_row = (
        (LedgerRow.job_id == ObservationRow.job_id)
        & (LedgerRow.attempt == ObservationRow.attempt)
        & (LedgerRow.step == ObservationRow.step)
        & (LedgerRow.rank == queries.JUDGED_RANK)
    )
    wanted = select(*columns).join(LedgerRow, of_row).where(LedgerRow.job_id == job_id)
    wanted = wanted.where(LedgerRow.seq > after, LedgerRow.seq <= last).order_by(*columns[:3])
    rows, names = connection.execute(wanted).all(), queries.signal_sets(connection, job_id)
    found: dict[Key, SignalRollup] = {}
    for level in LEVELS:
        for (attempt, first, known), group in groupby(rows, partial(_stretch, level)):
            steps, values = zip(*((row[2], unpacked_floats(row[3])) for row in group), strict=True)
            rollup = SignalRollup.of(level, names[known], steps, np.array(values))
            key = attempt, level, first
            found[key] = found[key].merged(rollup) if key in found else rollup
    return found


def _stretch(level: int, row: Sequence[Any]) -> tuple[int, int, int]:
    """Attempt, first step and signals of the stretch of one set that a row is part of."""
    return row[0], first_of(row[2], level), row[1]


def merge(connection: Connection, job_id: int, found: Mapping[Key, SignalRollup], seq: int) -> None:
    """Add roll-ups to those that there are; no ledger row behind `seq` is in them."""
    if not found:
        return
    names = queries.signal_sets(connection, job_id)
    held = {_key(row): row for row in _rows(connection, job_id, found)}
    merged = {
        key: as_rollup(held[key], names).merged(rollup) if key in held else rollup for key, rollup in found.items()
    }
    sets = SignalSets().numbered(connection, [(job_id, rollup.names) for rollup in merged.values()])
    written = [
        {
            "job_id": job_id,
            "attempt": attempt,
            "level": level,
            "first": first,
            "last": rollup.last,
            "steps": rollup.steps,
            "seq": seq,
            "alone": key in held and held[key]["alone"],
            "set_id": sets[job_id, rollup.names],
            "data": compressed(rollup.packed()),
        }
        for key, rollup in merged.items()
        for attempt, level, first in [key]
    ]
    replace(connection, SignalRollupRow, written)


def as_rollup(row: RowMapping, names: Names) -> SignalRollup:
    """The roll-up that a row of `signal_rollups` holds."""
    return SignalRollup.read(
        decompressed(row["data"]),
        level=row["level"],
        first=row["first"],
        last=row["last"],
        steps=row["steps"],
        names=names[row["set_id"]],
    )


def replace(connection: Connection, table: type[Any], rows: Sequence[dict[str, Any]]) -> None:
    """Write rows of stretches, in the place of those of the same key."""
    statement = upsert(connection, table)
    key = [column.name for column in table.__table__.primary_key]
    new = {name: statement.excluded[name] for name in rows[0] if name not in key}
    connection.execute(statement.on_conflict_do_update(index_elements=key, set_=new), rows)


def in_keys(table: type[Any], job_id: int, keys: Iterable[Key]) -> tuple[Any, Any]:
    """Conditions for the rows of a job's stretches."""
    return table.job_id == job_id, tuple_(table.attempt, table.level, table.first).in_(list(keys))


def _rows(connection: Connection, job_id: int, keys: Iterable[Key]) -> Sequence[RowMapping]:
    wanted = select(*SignalRollupRow.__table__.columns).where(*in_keys(SignalRollupRow, job_id, keys))
    return connection.execute(wanted).mappings().all()


def _key(row: RowMapping) -> Key:
    return row["attempt"], row["level"], row["first"]
