"""Schema migrations, run from the program itself: whoever has the wheel has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection

from trimtab.storage.engine import StorageError


def migrate(connection: Connection) -> None:
    """Bring the schema to the newest revision, inside the caller's transaction.

    Raises:
        StorageError: the schema was written by a newer program.
    """
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
