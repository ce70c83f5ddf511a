"""A database put back as it was, under trainers that have gone on.

What was decided after the backup is lost: modes, kills, changes of controls. So every job is told, on record, that its
ledger was restored: the agent sends nothing before the trainer has reported what it holds, lowers no generation, and
acts no more until a person sets the job's mode. Browsers have to log in again.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import delete

from trimtab.agent.state import OperatorAction, OperatorVerb
from trimtab.api.restore import UnreadableJobError
from trimtab.api.service import Service
from trimtab.storage.backup import copy, new_file, seal, unpacked
from trimtab.storage.database import Database
from trimtab.storage.tables.access import SessionRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What was put back."""

    jobs: tuple[str, ...]
    """Those that were told of it."""
    unreadable: tuple[str, ...]
    """Why others could not be."""


def recover(file: Path, target: str, *, issuer: str) -> Recovered:
    """Put a backup in the place of a database that does not exist (SQLite) or is empty (PostgreSQL): all, or nothing.

    Raises:
        StorageError: the backup cannot be read, or there is something in its place.
    """
    reason = f"restored from {file.name}"
    if "://" not in target or target.startswith("sqlite"):
        path = Path(Database(target).name) if "://" in target else Path(target)
        with new_file(path) as partial:
            recovered = _told(unpacked(file, partial), issuer, reason)
            seal(partial)
        return recovered
    with tempfile.TemporaryDirectory(prefix="trimtab-restore-") as folder:
        partial = Path(folder) / "restored.db"
        recovered = _told(unpacked(file, partial), issuer, reason)
        with closing(Database(partial)) as source, closing(Database(target)) as database:
            database.migrate()
            copy(source, database)
    return recovered


def mark_restored(database: Database, *, issuer: str) -> Recovered:
    """Tell the jobs of a database that was put back by other means; it may be served meanwhile."""
    database.migrate()
    return _told(database, issuer, "restored by other means")


def _told(database: Database, issuer: str, reason: str) -> Recovered:
    told, unreadable = [], []
    with closing(Service(database)) as service:
        for job in reversed(service.store.jobs()):
            if job.rows:
                action = OperatorAction(job=job.name, verb=OperatorVerb.RESTORED, issuer=issuer, reason=reason)
                try:
                    service.operate(action)
                    told.append(job.name)
                except UnreadableJobError as error:
                    unreadable.append(str(error))
        with database.write() as connection:
            connection.execute(delete(SessionRow))
    return Recovered(jobs=tuple(told), unreadable=tuple(unreadable))
