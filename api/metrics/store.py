"""What waits in the database, and how large it is."""

from __future__ import annotations

from trimtab.api.metrics.families import Family, labelled
from trimtab.storage.backlog import backlog
from trimtab.storage.database import Database
from trimtab.storage.size import size_of


def store_text(database: Database, now: float) -> str:
    """In Prometheus' text format. Raises `DBAPIError`."""
    found = backlog(database)
    rows = Family("trimtab_outbox_rows", "What people have yet to be told, by what it waits for.")
    ages = Family("trimtab_outbox_oldest_age_seconds", "How long the oldest of it has waited; 0 where nothing does.")
    for stage, waiting in (("grouping", found.grouping), ("delivery", found.delivery)):
        rows.add(labelled(stage=stage), waiting.rows)
        ages.add(labelled(stage=stage), 0.0 if waiting.since is None else max(now - waiting.since, 0.0))
    dead = Family("trimtab_dead_letters", "Notifications that were given up, until a person sends them again.")
    dead.add("", found.dead)
    size = Family("trimtab_database_size_bytes", "Room that the database takes.")
    size.add("", size_of(database))
    return "".join(family.text() for family in (rows, ages, dead, size))
