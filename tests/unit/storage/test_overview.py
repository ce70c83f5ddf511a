"""Many jobs at once, and those that are put away."""

from collections.abc import Iterator

import pytest

from trimtab.storage.archive import Archive
from trimtab.storage.audit import Audit
from trimtab.storage.codec import digest
from trimtab.storage.database import Database
from trimtab.storage.overview import Attempt, Overview
from trimtab.storage.queries import UnknownJobError
from trimtab.storage.store import Store
from trimtab.storage.values import Arrival, Entry, EntryKind, Folded, Origin

ADA = Origin(actor="ada", token="t1", ip="192.0.2.1")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    database.migrate()
    yield database
    database.close()


def stored(
    database: Database, job: str, *steps: int, attempt: int = 1, rank: int = 0, at: float = 0.0, text: str = "{}"
) -> None:
    """Summaries of a job, each received its step in seconds after `at`."""
    arrivals = [
        Arrival(
            job=job,
            entry=Entry(
                kind=EntryKind.SUMMARY,
                payload=text,
                digest=digest(text),
                received_at=at + step,
                attempt=attempt,
                step=step,
                rank=rank,
            ),
        )
        for step in steps
    ]
    Store(database).append(
        arrivals, lambda: lambda *_: Folded(events=(), signals={}, result=None), config_if_new='{"window": 5}'
    )


def overview(database: Database, arrivals: int = 3) -> Overview:
    return Overview(database, arrivals=arrivals)


def test_the_newest_arrivals_of_each_job_come_the_newest_first(database: Database) -> None:
    stored(database, "a", 1, 2, 3, 4, 5)
    stored(database, "b", 7, attempt=2, at=100.0)
    stored(database, "b", 8, 9, attempt=1)  # an older attempt that still reports
    stored(database, "b", 8, attempt=2, rank=1, at=200.0)
    Store(database).register("c", "{}", 5.0, keep=lambda _: True, origin=Origin(), reason="r")
    found = {line.job.name: line for line in overview(database).lines()}
    assert list(found) == ["c", "b", "a"]
    assert {name: line.arrivals for name, line in found.items()} == {"c": (), "b": (107.0,), "a": (5.0, 4.0, 3.0)}
    assert [line.job.rows for line in found.values()] == [0, 4, 5]
    assert [line.job.last_received_at for line in found.values()] == [None, 107.0, 5.0]


def test_what_is_in_quarantine_is_counted_with_its_time(database: Database) -> None:
    stored(database, "a", 1, 2)
    stored(database, "b", 1)
    for text in ('{"x": 1}', '{"x": 2}'):
        stored(database, "a", 1, text=text, at=10.0)
    b, a = overview(database).lines()
    assert (a.quarantined, a.quarantined_at) == (2, 11.0)
    assert (b.quarantined, b.quarantined_at) == (0, None)


def test_pages_and_words(database: Database) -> None:
    for name in ("Cliff-1", "cliff-2", "slope_1", "cliff-3"):
        stored(database, name, 1)
    lines = overview(database).lines(limit=2)
    assert [line.job.name for line in lines] == ["cliff-3", "slope_1"]
    assert [line.job.name for line in overview(database).lines(before=lines[-1].id)] == ["cliff-2", "Cliff-1"]
    assert [line.job.name for line in overview(database).lines(query="CLIFF-")] == ["cliff-3", "cliff-2", "Cliff-1"]
    assert [line.job.name for line in overview(database).lines(query="e_")] == ["slope_1"]  # and not "f-"
    assert overview(database).lines(query="%") == []
    assert overview(database).line("cliff-2").job.name == "cliff-2"
    with pytest.raises(UnknownJobError):
        overview(database).line("cliff")


def test_attempts_come_the_newest_first_with_both_their_ends(database: Database) -> None:
    stored(database, "a", 0, 1, 2, attempt=1)
    stored(database, "a", 2, 3, attempt=7, at=50.0)
    stored(database, "a", 9, attempt=7, rank=1, at=50.0)
    newest, oldest = overview(database).attempts("a")
    assert newest == Attempt(
        attempt=7, summaries=2, first_step=2, last_step=3, first_received_at=52.0, last_received_at=53.0
    )
    assert (oldest.attempt, oldest.summaries, oldest.first_received_at, oldest.last_received_at) == (1, 3, 0.0, 2.0)
    assert overview(database).attempts("a", limit=1) == [newest]
    assert overview(database).attempts("a", before=7) == [oldest]
    with pytest.raises(UnknownJobError):
        overview(database).attempts("b")


def test_an_archived_job_is_elsewhere_and_on_record_until_it_is_brought_back(database: Database) -> None:
    stored(database, "a", 1)
    stored(database, "b", 1)
    archive = Archive(database)
    assert archive.put_away("a", at=9.0, origin=ADA, issuer="me", reason="it is done")
    assert not archive.put_away("a", at=10.0, origin=ADA, issuer="me", reason="again")
    assert [line.job.name for line in overview(database).lines()] == ["b"]
    [line] = overview(database).lines(archived=True)
    assert (line.job.name, line.job.archived_at) == ("a", 9.0)
    assert overview(database).line("a") == line
    assert archive.bring_back("a", at=11.0, origin=ADA, issuer="me", reason="a look back")
    assert not archive.bring_back("b", at=11.0, origin=ADA, issuer="me", reason="it is there")
    assert overview(database).lines(archived=True) == []
    links = Audit(database).page(limit=10)
    assert [(link.action, link.job, link.at, link.actor, link.reason) for link in links] == [
        ("archive", "a", 9.0, "ada", "it is done"),
        ("unarchive", "a", 11.0, "ada", "a look back"),
    ]
    for change in (archive.put_away, archive.bring_back):
        with pytest.raises(UnknownJobError):
            change("nobody", at=1.0, origin=ADA, issuer="me", reason="r")


def test_a_job_that_reports_again_is_back_and_the_log_says_so(database: Database) -> None:
    stored(database, "a", 1)
    stored(database, "b", 1)
    for job in ("a", "b"):
        Archive(database).put_away(job, at=9.0, origin=ADA, issuer="me", reason="it is done")
    stored(database, "a", 1, at=5.0)  # once more, with the same content: nothing is written
    assert [line.job.name for line in overview(database).lines(archived=True)] == ["b", "a"]
    stored(database, "a", 2, at=18.0)
    assert [line.job.name for line in overview(database).lines()] == ["a"]
    last = Audit(database).page(limit=10)[-1]
    assert (last.action, last.job, last.at, last.actor, last.reason) == (
        "unarchive",
        "a",
        20.0,
        "agent",
        "it reports again",
    )
