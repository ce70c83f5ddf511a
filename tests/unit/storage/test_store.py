"""The store on both kinds of database."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from trimtab.storage.database import Database
from trimtab.storage.engine import StorageError, open_engine
from trimtab.storage.observations import observed
from trimtab.storage.overview import Overview
from trimtab.storage.queries import UnknownJobError
from trimtab.storage.store import Appended, ConfigFixedError, ConflictError, Store
from trimtab.storage.tables import Base
from trimtab.storage.values import Arrival, Entry, EntryKind, Folded, NewEvent, Origin, Past, StoredState

ENTRY = Entry(kind=EntryKind.SUMMARY, payload='{"a":1}', digest="d" * 64, received_at=10.0, attempt=1, step=0, rank=0)
KILL = '{"job": "run", "verb": "kill", "issuer": "ada", "reason": "enough"}'
ACTION = Entry(kind=EntryKind.OPERATOR, payload=KILL, digest="e" * 64, received_at=11.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = Store(Database(database_url))
    store.database.migrate()
    yield store
    store.database.close()


@pytest.fixture
def file_store(path: Path) -> Store:
    store = Store(Database(path))
    store.database.migrate()
    return store


def counting(past: Past, _arrival: Arrival, _is_new: bool) -> Folded[int]:
    """A fold whose state is the number of entries so far, with one event each and a snapshot of every second state."""
    n = past.seq + 1
    event = NewEvent(kind="counted", attempt=1, step=n, message=f"entry {n}", detail=f'{{"n": {n}}}')
    snapshot = counted(n) if n % 2 == 0 else None
    signals = {"n": float(n), "broken": float("nan"), "endless": float("-inf")}
    return Folded(events=(event,), signals=signals, result=n, snapshot=snapshot)


def counted(n: int) -> StoredState:
    return StoredState(state=str(n), schema="s" * 64, seq=n)


def put(store: Store, entry: Entry, job: str = "run") -> tuple[Appended, int]:
    answer = store.append([Arrival(job=job, entry=entry)], lambda: counting, config_if_new='{"window": 5}')[0]
    if isinstance(answer, Exception):
        raise answer
    return answer


def register(store: Store, config: str, keep: Callable[[str], bool]) -> None:
    store.register("run", config, 1.0, keep=keep, origin=Origin(), reason="r")


def snapshot(store: Store, job: str = "run") -> StoredState | None:
    return store.read(job, lambda past: past.snapshot())


def test_an_entry_is_stored_with_everything_that_it_changes(store: Store) -> None:
    assert put(store, ENTRY) == (Appended.STORED, 1)
    assert put(store, ACTION) == (Appended.STORED, 2)
    recorded = store.recorded("run")
    assert recorded.config == '{"window": 5}'
    assert recorded.entries == (replace(ENTRY, seq=1), replace(ACTION, seq=2))
    assert [(e.number, e.seq, e.kind, e.message, e.detail) for e in recorded.events] == [
        (1, 1, "counted", "entry 1", {"n": 1}),
        (2, 2, "counted", "entry 2", {"n": 2}),
    ]
    assert recorded.state == snapshot(store) == counted(2)
    assert store.job("run").rows == 2


def test_a_repeated_summary_is_folded_for_its_answer_and_not_stored(store: Store) -> None:
    put(store, ENTRY)
    before = store.recorded("run")
    assert put(store, replace(ENTRY, received_at=99.0)) == (Appended.DUPLICATE, 2)
    assert store.recorded("run") == before


def test_other_content_under_a_key_goes_to_quarantine_once_and_the_first_stays(store: Store) -> None:
    put(store, ENTRY)
    before = store.recorded("run")
    for _ in range(2):
        with pytest.raises(ConflictError, match="attempt 1, step 0, rank 0 of job 'run'"):
            put(store, replace(ENTRY, payload='{"a":2}', digest="f" * 64))
    assert store.recorded("run") == before
    assert store.quarantined("run") == 1


def test_the_same_content_with_another_digest_is_the_same(store: Store) -> None:
    first = replace(ENTRY, payload='{"a": 1, "b": 2}')
    again = replace(ENTRY, payload='{"b":2,"a":1}', digest="f" * 64)  # as another version digested it, or ordered it
    assert put(store, first) == (Appended.STORED, 1)
    assert put(store, again) == (Appended.DUPLICATE, 2)
    later = [Arrival(job="run", entry=replace(each, step=1)) for each in (first, again)]
    assert store.append(later, lambda: counting, config_if_new="{}") == [(Appended.STORED, 2), (Appended.DUPLICATE, 3)]
    assert store.quarantined("run") == 0


def test_actions_have_no_key(store: Store) -> None:
    assert [put(store, ACTION) for _ in range(3)] == [(Appended.STORED, n) for n in (1, 2, 3)]


def test_a_fold_that_raises_stores_nothing_not_even_the_job(store: Store) -> None:
    def broken(_past: Past, _arrival: Arrival, _is_new: bool) -> Folded[int]:
        raise RuntimeError("no")

    (answer,) = store.append([Arrival(job="run", entry=ENTRY)], lambda: broken, config_if_new="{}")
    assert repr(answer) == "RuntimeError('no')"
    assert store.jobs() == []
    assert put(store, ENTRY) == (Appended.STORED, 1)


def test_jobs_are_counted_apart_and_listed_newest_first(store: Store) -> None:
    put(store, ENTRY, "one")
    put(store, ENTRY, "two")
    assert put(store, replace(ENTRY, step=1), "one") == (Appended.STORED, 2)
    assert [(job.name, job.rows) for job in store.jobs()] == [("two", 1), ("one", 2)]


@pytest.mark.parametrize("read", ["job", "recorded", "latest_summary", "events", "signal_names", "quarantined"])
def test_an_unknown_job_is_an_error_everywhere(store: Store, read: str) -> None:
    with pytest.raises(UnknownJobError, match="there is no job 'nope'"):
        getattr(store, read)("nope")


def test_non_finite_signals_are_what_they_were(store: Store) -> None:
    put(store, ENTRY)
    put(store, ACTION)
    put(store, replace(ENTRY, step=1, digest="a" * 64))
    n, broken, unseen = store.signals("run", ["n", "broken", "unseen"], 1)
    assert (n.steps, n.values) == ((0, 1), (1.0, 3.0))
    assert list(map(repr, broken.values)) == ["nan", "nan"]
    assert store.signals("run", ["endless"], 1)[0].values == (float("-inf"), float("-inf"))
    assert unseen.steps == ()
    assert store.signal_names("run") == ["broken", "endless", "n"]
    assert observed(store.database, [(1, 1, 1)])[1, 1, 1]["n"] == 3.0
    assert store.attempts("run") == [1]


@pytest.mark.parametrize("ranks", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_rank_0_draws_the_chart_whenever_it_comes(store: Store, ranks: tuple[int, ...]) -> None:
    for rank in ranks:
        put(store, replace(ENTRY, rank=rank, digest=str(rank) * 64))
    place = ranks.index(0) + 1
    (n,) = store.signals("run", ["n"], 1)
    assert (n.steps, n.values) == ((0,), (float(place),))
    latest = store.latest_summary("run")
    assert latest is not None
    assert (latest.rank, latest.seq) == (0, place)


def test_a_job_of_which_rank_0_says_nothing_has_no_chart(store: Store) -> None:
    put(store, replace(ENTRY, rank=1))
    assert store.signal_names("run") == []
    assert store.latest_summary("run") is None


def test_entries_of_one_transaction_are_answered_one_by_one(store: Store) -> None:
    put(store, ENTRY)
    wanted = [
        ("run", replace(ENTRY, step=1)),
        ("run", replace(ENTRY, step=1)),
        ("run", replace(ENTRY, payload='{"a":2}', digest="f" * 64)),
        ("other", ENTRY),
        ("run", ACTION),
        ("run", replace(ENTRY, step=1, payload='{"a":2}', digest="a" * 64)),
    ]
    arrivals = [Arrival(job=job, entry=entry) for job, entry in wanted]
    answers = store.append(arrivals, lambda: counting, config_if_new="{}")
    assert [type(each) if isinstance(each, Exception) else each for each in answers] == [
        (Appended.STORED, 2),
        (Appended.DUPLICATE, 3),
        ConflictError,
        (Appended.STORED, 1),
        (Appended.STORED, 3),
        ConflictError,
    ]
    assert [entry.seq for entry in store.recorded("run").entries] == [1, 2, 3]
    assert [event.number for event in store.events("run")] == [1, 2, 3]
    assert [event.number for event in store.events("other")] == [1]
    assert store.quarantined("run") == 2
    assert snapshot(store) == counted(2)


def test_a_snapshot_is_made_of_the_ledger_in_order(store: Store) -> None:
    for step in range(3):
        put(store, replace(ENTRY, step=step))

    def steps(past: Past) -> StoredState:
        assert (past.job, past.config, past.seq, past.snapshot()) == ("run", '{"window": 5}', 3, counted(2))
        read = repr([[entry.step for entry in past.entries(n)] for n in (0, 2)])
        return StoredState(state=read, schema="other", seq=past.seq)

    kept = store.snapshot("run", steps)
    assert snapshot(store) == kept == StoredState(state="[[0, 1, 2], [2]]", schema="other", seq=3)
    with pytest.raises(UnknownJobError):
        store.snapshot("nope", steps)


def test_an_older_snapshot_does_not_take_the_place_of_a_newer_one(store: Store) -> None:
    for step in range(4):
        put(store, replace(ENTRY, step=step))
    store.snapshot("run", lambda _: counted(3))
    assert snapshot(store) == counted(4)


def test_a_file_that_is_only_read_is_not_written_to(file_store: Store, path: Path) -> None:
    put(file_store, ENTRY)
    reader = Store(Database(path, read_only=True))
    put(file_store, replace(ENTRY, step=1))
    assert reader.recorded("run") == file_store.recorded("run")
    with pytest.raises(OperationalError, match="readonly database"):
        put(reader, replace(ENTRY, step=2))


def test_a_file_that_is_only_read_may_have_any_name(tmp_path: Path) -> None:
    path = tmp_path / "50% of a?b #1.db"
    store = Store(Database(path))
    store.database.migrate()
    put(store, ENTRY)
    assert [job.name for job in Store(Database(path, read_only=True)).jobs()] == ["run"]


def test_events_are_paged_and_filtered(store: Store) -> None:
    for step in range(5):
        put(store, replace(ENTRY, step=step))
    assert [event.number for event in store.events("run", after=1, limit=2)] == [2, 3]
    assert store.events("run", kinds=["other"]) == []
    assert len(store.events("run", kinds=["counted"])) == 5


def test_the_latest_summary_is_the_newest_and_not_the_last_that_came(store: Store) -> None:
    newest = replace(ENTRY, attempt=5, step=7, received_at=70.0)
    put(store, replace(newest, step=6, received_at=60.0))
    put(store, newest)
    put(store, replace(newest, step=3, received_at=80.0))
    put(store, replace(newest, attempt=4, step=9, received_at=81.0))
    put(store, replace(newest, rank=1, step=9, received_at=82.0))
    put(store, ACTION)
    latest = store.latest_summary("run")
    assert latest is not None
    assert (latest.attempt, latest.step, latest.seq) == (5, 7, 2)
    assert store.job("run").last_received_at == 70.0
    assert Overview(store.database, arrivals=2).line("run").arrivals == (70.0, 60.0)


def test_settings_are_fixed_by_the_first_entry(store: Store) -> None:
    register(store, '{"window": 5}', lambda _: False)
    register(store, '{"window": 6}', lambda known: known == '{"window": 7}')
    put(store, ENTRY)
    register(store, '{"window": 7}', lambda known: known == '{"window": 6}')
    with pytest.raises(ConfigFixedError, match="'run' has a ledger that was folded with other settings"):
        register(store, '{"window": 7}', lambda _: False)
    assert store.job("run").config == '{"window": 6}'


def test_threads_that_send_the_same_entries_store_each_once_and_in_order(store: Store) -> None:
    outcomes: list[Appended] = []
    gate = threading.Barrier(8)

    def send() -> None:
        gate.wait()
        for step in range(10):
            outcomes.append(put(store, replace(ENTRY, step=step))[0])

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count(Appended.STORED) == 10
    assert outcomes.count(Appended.DUPLICATE) == 70
    assert [entry.seq for entry in store.recorded("run").entries] == list(range(1, 11))
    assert snapshot(store) == counted(10)


def test_two_stores_on_one_database_see_each_other(store: Store, database_url: str) -> None:
    other = Store(Database(database_url))
    put(store, ENTRY)
    assert put(other, replace(ENTRY, step=1)) == (Appended.STORED, 2)
    assert snapshot(store) == counted(2)
    other.database.close()


def test_the_migrations_make_exactly_the_tables(store: Store) -> None:
    with store.database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_migrating_again_changes_nothing_and_readiness_follows(database_url: str) -> None:
    store = Store(Database(database_url))
    assert store.database.not_ready() == ["the schema is at nothing, not at 0006; restart the service to migrate it"]
    store.database.migrate()
    store.database.migrate()
    assert store.database.not_ready() == []
    store.database.close()


def test_a_schema_of_a_newer_program_is_refused(store: Store) -> None:
    with store.database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StorageError, match="upgrade trimtab"):
        store.database.migrate()
    assert store.database.not_ready() == ["the schema is at 9999, not at 0006; restart the service to migrate it"]


def test_sqlite_is_set_up_for_one_writer_and_many_readers(path: Path) -> None:
    with open_engine(path).connect() as connection:
        read = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "busy_timeout", "foreign_keys")
        }
    assert read == {"journal_mode": "wal", "synchronous": 1, "busy_timeout": 5000, "foreign_keys": 1}


def test_a_path_that_cannot_be_is_told_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="does not exist; make it"):
        Database(tmp_path / "no" / "agent.db")
    with pytest.raises(StorageError, match="is a folder"):
        Database(tmp_path)
    with pytest.raises(StorageError, match="cannot be used"):
        Database("nonsense://host/db")


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("remember the milk\n" * 100)
    with pytest.raises(StorageError, match="cannot be used: file is not a database"):
        Database(path).migrate()
    assert path.read_text().startswith("remember the milk")
