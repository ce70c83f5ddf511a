"""The signals of many jobs at once, for those who look at all of them every few seconds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache

from sqlalchemy import select, tuple_

from trimtab.storage.database import Database
from trimtab.storage.packing import unpacked_floats
from trimtab.storage.tables import ObservationRow, SignalSetRow

Place = tuple[int, int, int]
"""A job's id, an attempt and a step."""


def observed(database: Database, places: Iterable[Place]) -> dict[Place, dict[str, float]]:
    """Every signal of each of these steps, by name; a step that was not reported is not among them."""
    key = (ObservationRow.job_id, ObservationRow.attempt, ObservationRow.step)
    wanted = (
        select(*key, ObservationRow.values, SignalSetRow.names)
        .join(SignalSetRow, SignalSetRow.id == ObservationRow.set_id)
        .where(tuple_(*key).in_(list(places)))
    )
    with database.read() as connection:
        return {
            (job_id, attempt, step): dict(zip(_listed(names), unpacked_floats(values), strict=True))
            for job_id, attempt, step, values, names in connection.execute(wanted)
        }


@lru_cache(maxsize=4096)
def _listed(names: str) -> tuple[str, ...]:
    return tuple(json.loads(names))
