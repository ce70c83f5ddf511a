"""How much room a database takes."""

from __future__ import annotations

from sqlalchemy import text

from trimtab.storage.database import Database

_SIZES = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    "postgresql": "SELECT pg_database_size(current_database())",
}


def size_of(database: Database) -> int:
    """Bytes; of SQLite the file without its log, which is bounded."""
    with database.read() as connection:
        return int(connection.execute(text(_SIZES[database.dialect])).scalar_one())
