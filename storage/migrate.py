"""Schema migrations, run from the program itself: whoever has the wheel has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, func, select

from trimtab.storage.engine import StorageError

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
            if not sqlite:  # two replicas may start at once
                connection.execute(select(func.pg_advisory_xact_lock(MIGRATING)))
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
    config = _config()
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise StorageError(f"db: its schema is not one that this version knows ({error}); upgrade trimtab") from error


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
    scripts = ScriptDirectory.from_config(_config())
    current = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in scripts.walk_revisions()}
    return Revision(current=current, head=scripts.get_current_head() or "", known=current in known)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).resolve().parent / "migrations"))
    return config
