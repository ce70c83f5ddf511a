"""Schema migrations, run from the program itself: whoever has the wheel has them.

A database that is up to date, as nearly always, is looked at without Alembic, which takes a tenth of a second to load.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, column, func, inspect, select, table

from trimtab.storage.engine import StorageError

_MIGRATIONS = Path(__file__).resolve().parent / "migrations"
_VERSION = table("alembic_version", column("version_num"))
MIGRATING = 7_000_001
"""Key of the advisory lock under which PostgreSQL's schema is changed."""


def migrate(connection: Connection) -> None:
    """Bring the schema to the newest revision, in one transaction of its own: all of it, or nothing.

    Raises:
        StorageError: the schema was written by a newer program, or the rows contradict each other afterwards.
    """
    sqlite = connection.dialect.name == "sqlite"
    if sqlite:  # its tables are changed by making them anew, which their foreign keys would forbid
        _pragma(connection, "foreign_keys=OFF")
    try:
        with connection.begin():
            if not sqlite:  # two replicas may start at once, and the first may take its time
                connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
                connection.execute(select(func.pg_advisory_xact_lock(MIGRATING)))
            found = revision(connection)
            if found.is_newest:
                return
            if found.current is not None and not found.known:
                raise StorageError(
                    f"db: its schema, {found.current}, is not one that this version knows; upgrade trimtab"
                )
            _upgrade(connection)
            if sqlite and (broken := connection.exec_driver_sql("PRAGMA foreign_key_check").first()):
                raise StorageError(f"db: row {broken[1]} of the table {broken[0]} refers to none of {broken[2]}")
    finally:
        if sqlite and not connection.invalidated:  # a Ctrl-C gives the driver's connection up
            _pragma(connection, "foreign_keys=ON")


def _pragma(connection: Connection, text: str) -> None:
    """On the driver's own connection, since the setting is ignored within a transaction."""
    connection.connection.cursor().execute(f"PRAGMA {text}").close()


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """Where the schema of a database stands."""

    current: str | None
    """None where nothing was ever migrated."""
    head: str
    """What this program reads and writes."""
    known: bool
    """This program has a migration that leads to `current`."""

    @property
    def is_newest(self) -> bool:
        """True when there is nothing to migrate."""
        return self.current == self.head


def revision(connection: Connection) -> Revision:
    """Where the schema stands."""
    there = inspect(connection).has_table(_VERSION.name)
    current = connection.execute(select(_VERSION.c.version_num)).scalar() if there else None
    return Revision(current=current, head=revisions()[-1], known=current in revisions())


@cache
def revisions() -> tuple[str, ...]:
    """Every revision that this program has a migration to, the first one first: they are numbered in their order."""
    return tuple(sorted(path.name[1:5] for path in (_MIGRATIONS / "versions").glob("v[0-9]*.py")))
