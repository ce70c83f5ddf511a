"""Signals over the steps of an attempt, no finer than asked for, on a connection whose transaction the caller holds.

The steps themselves are read where few lie behind each point that is wanted; roll-ups otherwise, each of which gives
what a chart is looked at for: the signal's least value, its greatest, and its first that is not finite. Where what is
finer is gone, the coarser stands in; what is newer than the roll-ups is read as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping, select

from trimtab.storage import queries
from trimtab.storage.packing import unpacked_floats
from trimtab.storage.rollups import LEVELS, first_of
from trimtab.storage.signal_rollups import Names, as_rollup
from trimtab.storage.tables import ObservationRow, SignalRollupRow
from trimtab.storage.values import SignalSeries

STEPS = 1
"""The level of the steps themselves."""
FINE, COARSE = LEVELS
Points = dict[str, list[tuple[int, float]]]
"""Steps and values, by signal."""


def series(
    connection: Connection, job_id: int, names: Sequence[str], attempt: int, points: int | None
) -> list[SignalSeries]:
    """The named signals of one attempt, in the order asked for, each from the coarsest stretches of which there are
    `points`; None for the steps themselves."""
    found: Points = {name: [] for name in names}
    sets = queries.signal_sets(connection, job_id)
    rolled, after = _rolled(connection, job_id, attempt)
    level = STEPS if points is None else next((each for each in (COARSE, FINE) if rolled // each >= points), STEPS)

    coarse = _stretches(connection, job_id, attempt, COARSE, only_alone=level < COARSE)
    coarse_alone = _alone(coarse)
    fine = [] if level == COARSE else _stretches(connection, job_id, attempt, FINE, only_alone=level < FINE)
    fine = [row for row in fine if first_of(row["first"], COARSE) not in coarse_alone]
    for row in (*coarse, *fine):
        rollup = as_rollup(row, sets)
        for name in found.keys() & set(rollup.names):
            found[name] += rollup.points(name)
    gone = (_alone(fine), coarse_alone)
    _read_steps(connection, job_id, attempt, found, sets, after=-1 if level == STEPS else after, gone=gone)

    return [_series(name, attempt, found[name]) for name in names]


def _rolled(connection: Connection, job_id: int, attempt: int) -> tuple[int, int]:
    """How many steps of the attempt are in the roll-ups, and the last of them; -1 where none is."""
    wanted = select(SignalRollupRow.steps, SignalRollupRow.last)
    rows = connection.execute(wanted.filter_by(job_id=job_id, attempt=attempt, level=COARSE)).all()
    return sum(row.steps for row in rows), max((row.last for row in rows), default=-1)


def _stretches(
    connection: Connection, job_id: int, attempt: int, level: int, *, only_alone: bool
) -> Sequence[RowMapping]:
    wanted = select(*SignalRollupRow.__table__.columns).filter_by(job_id=job_id, attempt=attempt, level=level)
    return connection.execute(wanted.where(SignalRollupRow.alone) if only_alone else wanted).mappings().all()


def _alone(rows: Sequence[RowMapping]) -> set[int]:
    """First steps of the stretches of which nothing finer is left."""
    return {row["first"] for row in rows if row["alone"]}


def _read_steps(
    connection: Connection,
    job_id: int,
    attempt: int,
    found: Points,
    sets: Names,
    *,
    after: int,
    gone: tuple[set[int], set[int]],
) -> None:
    """Add the steps behind `after` but for those of stretches that stand alone, given by their first steps."""
    fine, coarse = gone
    places = {found_id: _places(known, list(found)) for found_id, known in sets.items()}
    wanted = select(ObservationRow.step, ObservationRow.set_id, ObservationRow.values).where(
        ObservationRow.job_id == job_id, ObservationRow.attempt == attempt, ObservationRow.step > after
    )
    for step, found_id, data in connection.execute(wanted.order_by(ObservationRow.step)):
        if first_of(step, FINE) not in fine and first_of(step, COARSE) not in coarse:
            values = unpacked_floats(data)
            for name, place in places[found_id]:
                found[name].append((step, values[place]))


def _places(known: Sequence[str], names: Sequence[str]) -> list[tuple[str, int]]:
    place = {name: i for i, name in enumerate(known)}
    return [(name, place[name]) for name in names if name in place]


def _series(name: str, attempt: int, points: list[tuple[int, float]]) -> SignalSeries:
    points = sorted(points, key=lambda point: point[0])
    steps, values = zip(*points, strict=True) if points else ((), ())
    return SignalSeries(name=name, attempt=attempt, steps=steps, values=values)
