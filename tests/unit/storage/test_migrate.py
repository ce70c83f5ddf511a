"""Where a schema stands, and what is loaded to find out."""

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from trimtab.storage import migrate
from trimtab.storage.database import Database
from trimtab.storage.engine import StorageError

OPEN = """
import sys
from trimtab.storage.database import Database
database = Database(sys.argv[1])
database.migrate()
assert database.not_ready() == []
print("alembic" in sys.modules)
"""


def test_the_revisions_are_those_of_the_migrations_in_their_order() -> None:
    scripts = ScriptDirectory(str(Path(migrate.__file__).parent / "migrations"))
    assert migrate.revisions() == tuple(script.revision for script in scripts.walk_revisions())[::-1]


def test_a_database_that_is_up_to_date_is_opened_without_alembic(tmp_path: Path) -> None:
    told = [
        subprocess.run(
            [sys.executable, "-c", OPEN, str(tmp_path / "agent.db")], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert told == ["True\n", "False\n"]


def test_a_schema_of_a_newer_program_is_left_as_it_is(database_url: str) -> None:
    database = Database(database_url)
    database.migrate()
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StorageError, match="its schema, 9999, is not one that this version knows; upgrade trimtab"):
        database.migrate()
    assert not database.revision().known
    database.close()


def test_a_database_that_nobody_migrated_is_not_ready(database_url: str) -> None:
    database = Database(database_url)
    head = migrate.revisions()[-1]
    assert database.not_ready() == [f"the schema is at nothing, not at {head}; restart the service to migrate it"]
    database.close()
