"""The audit log on real databases: it is only ever added to, and tampering breaks the chain where it was done."""

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from postgres import PostgresServer
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from trimtab.storage.audit import FIRST, Audit, BrokenChainError, Deed, Head, append, verified
from trimtab.storage.database import Database
from trimtab.storage.values import Origin

PERSON = Origin(actor="ada", token="Ab12Cd34", ip="10.1.2.3")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    database.migrate()
    yield database
    database.close()


@pytest.fixture
def audit(database: Database) -> Audit:
    return Audit(database)


def deed(number: int) -> Deed:
    return Deed(
        action="patch_controls",
        at=1.7e9 + number / 3,
        origin=PERSON,
        job=f"run-{number % 2}",
        reason=f"try nr. {number}, Größe ∞",
        generation=number,
        detail={"before": {}, "after": {"clip_low": 0.1 + number, "centering": True}},
    )


def filled(audit: Audit, rows: int = 6) -> Audit:
    for number in range(rows):
        audit.append(deed(number))
    return audit


def tampered(database: Database, statement: str) -> None:
    """Change the log as only the owner of the database can."""
    with database.write() as connection:
        if database.dialect == "sqlite":
            for verb in ("update", "delete"):
                connection.execute(text(f"DROP TRIGGER audit_no_{verb}"))
        else:
            connection.execute(text("ALTER TABLE audit DISABLE TRIGGER ALL"))
        connection.execute(text(statement))


def test_each_row_holds_who_what_why_and_the_hash_of_the_row_before(audit: Audit) -> None:
    assert list(audit.links()) == []
    assert verified([]) == Head(number=0, hash=FIRST)
    first, second = filled(audit, 2).links()
    assert (first.number, first.actor, first.token, first.ip) == (1, "ada", "Ab12Cd34", "10.1.2.3")
    assert (first.action, first.job, first.reason, first.generation) == (
        "patch_controls",
        "run-0",
        "try nr. 0, Größe ∞",
        0,
    )
    assert first.detail == '{"after":{"centering":true,"clip_low":0.1},"before":{}}'
    assert first.at == 1.7e9
    assert (first.previous, second.previous) == (FIRST, first.hash)
    assert verified([first, second]) == Head(number=2, hash=second.hash)


def test_the_hash_is_that_of_the_canonical_json_of_the_other_columns(audit: Audit) -> None:
    (link,) = filled(audit, 1).links()
    written = (
        '{"action":"patch_controls","actor":"ada","at":1700000000.0,'
        '"detail":"{\\"after\\":{\\"centering\\":true,\\"clip_low\\":0.1},\\"before\\":{}}",'
        '"generation":0,"ip":"10.1.2.3","job":"run-0","number":1,"previous":"' + "0" * 64 + '",'
        '"reason":"try nr. 0, Gr\\u00f6\\u00dfe \\u221e","token":"Ab12Cd34"}'
    )
    assert link.hash == link.computed() == hashlib.sha256(written.encode()).hexdigest()


@pytest.mark.parametrize("statement", ["UPDATE audit SET reason = ''", "DELETE FROM audit WHERE number = 6"])
def test_the_database_refuses_to_change_or_delete_rows(database: Database, audit: Audit, statement: str) -> None:
    before = list(filled(audit).links())
    with pytest.raises(DBAPIError, match="the audit log is only ever added to"), database.write() as connection:
        connection.execute(text(statement))
    assert list(audit.links()) == before


def test_postgresql_refuses_to_empty_the_log(postgres: PostgresServer) -> None:
    with postgres.database() as url:
        database = Database(url)
        database.migrate()
        filled(Audit(database))
        with pytest.raises(DBAPIError, match="only ever added to"), database.write() as connection:
            connection.execute(text("TRUNCATE audit"))
        database.close()


@pytest.mark.parametrize(
    ("statement", "row", "why"),
    [
        ("UPDATE audit SET reason = 'it was not me' WHERE number = 3", 3, "its content is not what was hashed"),
        ("UPDATE audit SET at = at + 1 WHERE number = 2", 2, "its content"),
        ("UPDATE audit SET generation = NULL WHERE number = 4", 4, "its content"),
        ("UPDATE audit SET detail = '{}' WHERE number = 1", 1, "its content"),
        ("UPDATE audit SET previous = hash WHERE number = 5", 5, "does not follow on the row before"),
        ("DELETE FROM audit WHERE number = 2", 2, "it is missing, and row 3 follows"),
        ("DELETE FROM audit WHERE number = 1", 1, "it is missing, and row 2 follows"),
        (
            "INSERT INTO audit SELECT 7, at, actor, token, ip, action, job, reason, generation, detail, previous, hash"
            " FROM audit WHERE number = 6",
            7,
            "does not follow",
        ),
    ],
)
def test_tampering_is_found_where_it_was_done(
    database: Database, audit: Audit, statement: str, row: int, why: str
) -> None:
    filled(audit)
    tampered(database, statement)
    with pytest.raises(BrokenChainError, match=why) as caught:
        verified(audit.links())
    assert caught.value.number == row


def test_a_chain_that_is_written_anew_or_cut_short_is_found_by_a_head_that_was_noted(
    database: Database, audit: Audit
) -> None:
    links = list(filled(audit).links())
    noted = Head(number=4, hash=links[3].hash)
    assert verified(links, [noted]).number == 6
    tampered(database, "DELETE FROM audit WHERE number > 3")
    assert verified(audit.links()).number == 3
    with pytest.raises(BrokenChainError, match="row 4: it was noted, and the log ends with row 3"):
        verified(audit.links(), [noted])
    audit.append(deed(40))
    assert verified(audit.links()).number == 4
    with pytest.raises(BrokenChainError, match="row 4: it has another hash than the one that was noted"):
        verified(audit.links(), [noted])


def test_a_row_that_is_hashed_anew_breaks_the_next_one(audit: Audit) -> None:
    links = list(filled(audit).links())
    changed = replace(links[2], reason="it was not me")
    links[2] = replace(changed, hash=changed.computed())
    with pytest.raises(BrokenChainError, match="row 4: it does not follow on the row before it"):
        verified(links)


def test_pages_go_on_where_the_last_one_ended(audit: Audit) -> None:
    filled(audit)
    assert [link.number for link in audit.page(limit=4)] == [1, 2, 3, 4]
    assert [link.number for link in audit.page(after=4, limit=4)] == [5, 6]
    assert [link.number for link in audit.page(limit=9, job="run-1")] == [2, 4, 6]
    assert audit.page(after=6, limit=4) == []


def test_a_deed_of_a_transaction_that_fails_is_not_on_record(database: Database, audit: Audit) -> None:
    def fail() -> None:
        with database.write() as connection:
            append(connection, [deed(0)])
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        fail()
    assert list(audit.links()) == []


def test_writers_at_the_same_time_make_one_chain(database_url: str, database: Database) -> None:
    other = Database(database_url)
    gate = threading.Barrier(4)

    def write(audit: Audit) -> None:
        gate.wait()
        for number in range(8):
            audit.append(deed(number))

    threads = [threading.Thread(target=write, args=(Audit(one),)) for one in (database, other) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    assert verified(Audit(database).links()).number == 32
