"""Sets of signals that are observed together, by number: so that a step is stored as numbers alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from sqlalchemy import Connection, insert, select, tuple_

from trimtab.storage.tables import SignalSetRow

MOST_KNOWN = 20_000
"""Sets that are remembered."""

Set = tuple[int, tuple[str, ...]]
"""A job's id and names of signals."""


class SignalSets:
    """What is known of the sets in one database. They are never taken away, so what was read once stays true."""

    def __init__(self) -> None:
        self._known: dict[Set, int] = {}

    def numbered(self, connection: Connection, sets: Iterable[Set]) -> dict[Set, int]:
        """The numbers of sets, which are made where they are new.

        New ones are remembered only when they are read again: this transaction may yet be undone.
        """
        wanted = set(sets)
        unknown = {_key(each): each for each in wanted - self._known.keys()}
        if not unknown:
            return {each: self._known[each] for each in wanted}
        if len(self._known) + len(unknown) > MOST_KNOWN:
            self._known.clear()
            return self.numbered(connection, wanted)
        columns = (SignalSetRow.job_id, SignalSetRow.digest)
        rows = connection.execute(select(*columns, SignalSetRow.id).where(tuple_(*columns).in_(unknown)))
        self._known |= {unknown.pop((job_id, digest)): found for job_id, digest, found in rows}
        made = {each: _made(connection, each, digest) for (_, digest), each in unknown.items()}
        return {each: made.get(each) or self._known[each] for each in wanted}


def _key(wanted: Set) -> tuple[int, str]:
    job_id, names = wanted
    return job_id, hashlib.sha256(json.dumps(names).encode()).hexdigest()


def _made(connection: Connection, wanted: Set, digest: str) -> int:
    job_id, names = wanted
    row = insert(SignalSetRow).values(job_id=job_id, digest=digest, names=json.dumps(names))
    inserted = connection.execute(row).inserted_primary_key
    assert inserted is not None
    return int(inserted[0])
