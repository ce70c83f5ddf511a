"""Databases of every released schema, brought to the present one on both kinds of database."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_runs import step_summary
from old_schemas import RELEASED, fill, migrated_to, payloads, signals_of
from sqlalchemy import event, inspect, text
from sqlalchemy.exc import PendingRollbackError

from trimtab.api.service import Service, Taken
from trimtab.storage.codec import SUMMARY
from trimtab.storage.database import Database
from trimtab.storage.engine import StorageError
from trimtab.storage.migrate import revision
from trimtab.storage.observations import observed

Opener = Callable[[], Database]


@pytest.fixture(scope="module", params=RELEASED)
def released(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, released: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A filled database of an older schema, to be copied."""
    with _somewhere(request, tmp_path_factory.mktemp("old")) as url:
        database = Database(url)
        migrated_to(database, released)
        fill(database, released)
        database.close()
        yield url


@contextmanager
def _somewhere(request: pytest.FixtureRequest, folder: Path, like: str | None = None) -> Iterator[str]:
    if (like or "").startswith("postgresql") or (like is None and request.param == "postgresql"):
        with request.getfixturevalue("postgres").database(like=like) as url:
            yield url
        return
    if like is not None:
        shutil.copy(like, folder / "agent.db")
    yield str(folder / "agent.db")


@pytest.fixture
def url(request: pytest.FixtureRequest, old: str, tmp_path: Path) -> Iterator[str]:
    with _somewhere(request, tmp_path, like=old) as url:
        yield url


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    database = Database(url)
    yield database
    database.close()


def dumped(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, whatever the schema."""
    with database.read() as connection:
        names = inspect(connection).get_table_names()
        return {
            name: sorted((tuple(row) for row in connection.execute(text(f"SELECT * FROM {name}"))), key=repr)
            for name in sorted(names)
        }


def equal(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def test_every_row_is_there_byte_for_byte_and_every_signal_is_equal(database: Database) -> None:
    database.migrate()
    assert database.not_ready() == []
    service = Service(database)
    for job_id, job in enumerate(("run", "other"), start=1):
        recorded = service.store.recorded(job)
        expected = [row[1] if job == "run" else row[1].replace('"run"', '"other"') for row in payloads()]
        assert [entry.payload for entry in recorded.entries] == expected
        assert [(entry.seq, entry.received_at) for entry in recorded.entries] == [
            (seq, 100.0 + seq) for seq in range(1, len(expected) + 1)
        ]
        assert [(each.number, each.message, each.detail) for each in recorded.events] == [
            (number, "é", {"a": "NaN"}) for number in range(1, len(expected) + 1)
        ]
        assert service.store.quarantined(job) == 1
        truth = {
            (summary.attempt, summary.step): signals_of(payload)
            for payload, kind in zip(expected, [row[0] for row in payloads()], strict=True)
            if kind == "summary"
            for summary in [SUMMARY.decode(payload)]
        }
        found = observed(database, [(job_id, attempt, step) for attempt, step in truth])
        for (attempt, step), signals in truth.items():
            there = found[job_id, attempt, step]
            assert there.keys() == signals.keys()
            assert all(equal(there[name], value) for name, value in signals.items())
        [odd] = service.store.signals(job, ["odd"], 1)
        assert odd.steps == (0, 3, 6, 9)
        assert all(map(math.isnan, odd.values))


def test_the_states_are_folded_anew_and_the_jobs_go_on(database: Database) -> None:
    database.migrate()
    service = Service(database)
    assert [job.name for job in service.stale()] == ["other", "run"]
    state = service.rebuild("run")
    assert (state.attempt, state.last_step, state.tick) == (2, 11, 24)
    assert state.person_overrides == {"clip_low": 0.1}
    again = SUMMARY.decode(payloads()[0][1])
    assert service.ingest(again).result is Taken.DUPLICATE, "digests of another version mean the same"
    following = step_summary(12, attempt=2, generation=1, overrides={"clip_low": 0.1})
    assert service.ingest(following).result is Taken.STORED
    assert service.ingest(step_summary(0, job="new")).result is Taken.STORED
    assert service.store.job("run").rows == len(payloads()) + 1


def test_upgrading_twice_changes_nothing(database: Database) -> None:
    database.migrate()
    before = dumped(database)
    database.migrate()
    assert dumped(database) == before


class Interrupted(BaseException):
    """Nothing that a migration could catch."""


def statements(database: Database, act: Callable[[int], None]) -> None:
    """Call `act` with the number of each statement, before it runs."""
    done = 0

    @event.listens_for(database.engine, "before_cursor_execute")
    def count(*_: Any) -> None:
        nonlocal done
        done += 1
        act(done)


def test_an_upgrade_that_is_interrupted_anywhere_leaves_the_old_schema_as_it_was(url: str, released: str) -> None:
    database = Database(url)
    before, total = dumped(database), 0
    for last in range(1, 10_000, 5):

        def interrupt(number: int, last: int = last) -> None:
            if number == last:
                raise Interrupted

        trial = Database(url)
        statements(trial, interrupt)
        try:
            trial.migrate()
        except (Interrupted, PendingRollbackError):  # the latter where alembic tries to clean up
            total += 1
            trial.close()
            with database.read() as connection:
                assert revision(connection).current == released
            assert dumped(database) == before
            continue
        trial.close()
        break
    assert total > 5
    assert database.not_ready() == []
    database.close()


KILLED = """
import os, sys
from sqlalchemy import event
from trimtab.storage.database import Database
database, left = Database(sys.argv[1]), int(sys.argv[2])
@event.listens_for(database.engine, "before_cursor_execute")
def count(*_):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), 9)
database.migrate()
"""


def test_an_upgrade_that_is_killed_is_done_by_the_next_start(url: str, database: Database, released: str) -> None:
    before = dumped(database)
    database.engine.dispose()
    done = subprocess.run([sys.executable, "-c", KILLED, url, "40"], capture_output=True, timeout=120, check=False)
    assert done.returncode == -9, done.stderr
    assert dumped(database) == before
    assert database.revision().current == released
    database.migrate()
    assert database.not_ready() == []


def test_a_newer_schema_is_refused_and_left_as_it_is(database: Database) -> None:
    database.migrate()
    with database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    before = dumped(database)
    with pytest.raises(StorageError, match="its schema, 9999, is not one that this version knows; upgrade trimtab"):
        database.migrate()
    assert dumped(database) == before
    [reason] = database.not_ready()
    assert "the schema is at 9999" in reason
