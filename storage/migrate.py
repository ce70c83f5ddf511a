"""Schema migrations, run from the program itself: whoever has the wheel has them."""

from __future__ import annotations

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


def missing_revision(connection: Connection) -> str | None:
    """Why the schema is not the newest, or None when it is."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    current = MigrationContext.configure(connection).get_current_revision()
    if current == head:
        return None
    return f"the schema is at {current or 'nothing'}, not at {head}; restart the service to migrate it"


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).resolve().parent / "migrations"))
    return config
