"""Sets of signals and their numbers."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event

from trimtab.storage import inserts, queries
from trimtab.storage.database import Database
from trimtab.storage.signal_sets import SignalSets

NAMES = ("entropy", "reward_mean")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "agent.db")
    database.migrate()
    with database.write() as connection:
        inserts.jobs(connection, ["one", "two"], "{}", 0.0)
    yield database
    database.close()


def test_a_set_has_one_number_in_each_job(database: Database) -> None:
    sets = SignalSets()
    wanted = [(1, NAMES), (1, NAMES), (2, NAMES), (1, NAMES[::-1])]
    with database.write() as connection:
        first = sets.numbered(connection, wanted)
        assert len(set(first.values())) == len(first) == 3
        assert queries.signal_sets(connection, 1) == {
            first[1, NAMES]: list(NAMES),
            first[1, NAMES[::-1]]: list(NAMES[::-1]),
        }
        assert SignalSets().numbered(connection, wanted) == first


def test_what_was_undone_is_not_remembered(database: Database) -> None:
    sets = SignalSets()
    with contextlib.suppress(RuntimeError), database.write() as connection:
        sets.numbered(connection, [(1, NAMES)])
        raise RuntimeError
    with database.write() as connection:
        number = sets.numbered(connection, [(1, NAMES)])[1, NAMES]
        assert queries.signal_sets(connection, 1) == {number: list(NAMES)}


def test_what_is_known_is_not_asked_for_again(database: Database) -> None:
    sets, asked = SignalSets(), []
    for _ in range(2):
        with database.write() as connection:
            sets.numbered(connection, [(1, NAMES)])
    event.listen(database.engine, "before_cursor_execute", lambda *args: asked.append(args[2]))
    with database.write() as connection:
        sets.numbered(connection, [(1, NAMES)])
    assert [text for text in asked if "signal_sets" in text] == []
