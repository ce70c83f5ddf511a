"""A replay in a process of its own: `python -m trimtab.api.replay_worker`, one JSON object in, one out.

In: `{"database", "job", "settings"}`, the database as a URL, or the path of an SQLite file. It comes by standard input,
since anybody on the machine reads command lines, and a URL may hold a password. Out: a `Replayed`, or
`{"error": "..."}` where the job means nothing to this version.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import Any

from trimtab.agent.config import with_settings
from trimtab.api.refold import Difference, refolded
from trimtab.api.restore import UnreadableJobError, config_of
from trimtab.storage.database import Database
from trimtab.storage.store import Store

MOST_DECISIONS = 1000
"""Of each kind, in an answer."""
NICE = 10
"""Trainers that wait for an answer come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What other settings, or this version, would have made of a job."""

    entries: int
    """Ledger rows that were folded."""
    first: int
    """The first of them: what the summaries before it said is gone."""
    identical: bool
    """Every event and the stored state come out the same."""
    relearnt: bool
    """The replay begins with a state of another version, and so nothing has to be as it was."""
    difference: Difference | None
    """The first place where the two part."""
    gone: list[dict[str, Any]]
    """Decisions that were made at the time, and would not be; the first `MOST_DECISIONS`."""
    gone_total: int
    added: list[dict[str, Any]]
    """Decisions that would be made, and were not at the time; the first `MOST_DECISIONS`."""
    added_total: int


def replayed(database: Database, job: str, settings: dict[str, Any]) -> Replayed:
    """Fold the job's ledger again under other settings; those that are not named stay.

    Raises:
        UnknownJobError: there is no such job.
        ConfigError: settings that cannot be.
        UnreadableJobError: an entry means nothing to this version.
    """
    recorded = Store(database).recorded(job)
    found = refolded(recorded, with_settings(config_of(job, recorded.config), settings))
    return Replayed(
        entries=found.entries,
        first=found.first,
        identical=found.difference is None,
        relearnt=found.relearnt,
        difference=found.difference,
        gone=found.gone[:MOST_DECISIONS],
        gone_total=len(found.gone),
        added=found.added[:MOST_DECISIONS],
        added_total=len(found.added),
    )


def main() -> None:
    """Answer the one question."""
    os.nice(NICE)
    asked = json.load(sys.stdin)
    database = Database(asked["database"], read_only=True)
    try:
        answer = asdict(replayed(database, asked["job"], asked["settings"]))
    except UnreadableJobError as error:
        answer = {"error": str(error)}
    finally:
        database.close()
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
