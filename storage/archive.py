"""Jobs that are put away: not watched, not listed, nothing of them deleted. Nothing fires in them any more.

A job that reports again is back by itself: what trains is watched.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, bindparam, select, update

from trimtab.storage import audit, outbox, queries
from trimtab.storage.audit import BY_AGENT, Deed
from trimtab.storage.database import Database
from trimtab.storage.tables import JobRow
from trimtab.storage.values import Origin

_AWAY = (
    select(JobRow.id, JobRow.name)
    .where(JobRow.id.in_(bindparam("wanted", expanding=True)), JobRow.archived_at.is_not(None))
    .order_by(JobRow.id)
)


class Archive:
    """Puts jobs away, and back."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put_away(self, job: str, *, at: float, origin: Origin, issuer: str, reason: str) -> bool:
        """Archive a job at this Unix time; false where it is archived already. Raises `UnknownJobError`."""
        deed = Deed(action="archive", at=at, origin=origin, job=job, reason=reason, detail={"issuer": issuer})
        return self._set(job, at, deed)

    def bring_back(self, job: str, *, at: float, origin: Origin, issuer: str, reason: str) -> bool:
        """Watch an archived job again; false where it is not archived. Raises `UnknownJobError`."""
        deed = Deed(action="unarchive", at=at, origin=origin, job=job, reason=reason, detail={"issuer": issuer})
        return self._set(job, None, deed)

    def _set(self, job: str, archived_at: float | None, deed: Deed) -> bool:
        with self._database.write() as connection:
            job_id = queries.job_id(connection, job)
            changes = JobRow.archived_at.is_not(None) if archived_at is None else JobRow.archived_at.is_(None)
            statement = update(JobRow).where(JobRow.id == job_id, changes).values(archived_at=archived_at)
            if not connection.execute(statement).rowcount:
                return False
            outbox.touch(connection, job_id, deed.at)
            audit.append(connection, [deed])
        return True


def reported_again(connection: Connection, job_ids: Collection[int], at: float) -> list[Deed]:
    """Bring back those of the jobs that are archived, in the caller's transaction; what is to be put on record."""
    away = connection.execute(_AWAY, {"wanted": sorted(job_ids)}).all()
    if not away:
        return []
    connection.execute(update(JobRow).where(JobRow.id.in_([row.id for row in away])).values(archived_at=None))
    for row in away:
        outbox.touch(connection, row.id, at)
    return [Deed(action="unarchive", at=at, origin=BY_AGENT, job=row.name, reason="it reports again") for row in away]
