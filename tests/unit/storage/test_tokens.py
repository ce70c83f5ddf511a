"""Tokens and sessions on real databases."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from trimtab.storage.audit import Audit, Deed
from trimtab.storage.database import Database
from trimtab.storage.tokens import SpentTokenError, StoredSession, StoredToken, Tokens, UnknownTokenError
from trimtab.storage.values import Origin

TOKEN = StoredToken(
    id="Ab12Cd34",
    name="trainer of run-1",
    scopes=("ingest",),
    job="run-1",
    digest="1" * 64,
    created_at=100.0,
    expires_at=200.0,
)
SESSION = StoredSession(digest="5" * 64, token=TOKEN.id, created_at=110.0, expires_at=150.0)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    database.migrate()
    yield database
    database.close()


@pytest.fixture
def tokens(database: Database) -> Tokens:
    tokens = Tokens(database)
    tokens.create(TOKEN, deed("create_token", 100.0))
    return tokens


def deed(action: str, at: float) -> Deed:
    return Deed(action=action, at=at, origin=Origin())


def actions(database: Database) -> list[str]:
    return [link.action for link in Audit(database).links()]


def test_a_token_is_kept_as_it_is(tokens: Tokens, database: Database) -> None:
    other = StoredToken(
        id="Ef56Gh78", name="root", scopes=("read", "admin"), job=None, digest="2" * 64, created_at=99.0
    )
    tokens.create(other, deed("create_token", 99.0))
    assert tokens.all() == [other, TOKEN]
    assert actions(database) == ["create_token", "create_token"]


def test_a_token_is_valid_until_it_expires_or_is_revoked() -> None:
    assert TOKEN.digests(199.9) == ("1" * 64,)
    assert TOKEN.digests(200.0) == ()
    assert replace(TOKEN, expires_at=None).digests(1e12) == ("1" * 64,)
    assert replace(TOKEN, revoked_at=150.0).digests(100.0) == ()


def test_a_revoked_token_stays_on_record_and_its_sessions_end(tokens: Tokens, database: Database) -> None:
    tokens.open_session(SESSION, deed("log_in", 110.0), shown=TOKEN.digest)
    revoked = tokens.revoke(TOKEN.id, deed("revoke_token", 120.0))
    assert revoked == replace(TOKEN, revoked_at=120.0)
    assert tokens.revoke(TOKEN.id, deed("revoke_token", 130.0)) == revoked
    assert tokens.all() == [revoked]
    assert tokens.sessions(120.0) == []
    assert actions(database) == ["create_token", "log_in", "revoke_token"]


def test_both_secrets_are_taken_until_the_old_one_ends(tokens: Tokens) -> None:
    tokens.open_session(SESSION, deed("log_in", 110.0), shown=TOKEN.digest)
    rotated = tokens.rotate(TOKEN.id, "2" * 64, old_until=140.0, deed=deed("rotate_token", 120.0))
    assert rotated.digests(139.9) == ("2" * 64, "1" * 64)
    assert rotated.digests(140.0) == ("2" * 64,)
    assert tokens.sessions(120.0) == [replace(SESSION, expires_at=140.0)]
    again = tokens.rotate(TOKEN.id, "3" * 64, old_until=150.0, deed=deed("rotate_token", 130.0))
    assert again.digests(135.0) == ("3" * 64, "2" * 64)
    assert tokens.sessions(130.0) == []  # the secret that it showed is taken no more


def test_a_secret_that_leaked_is_replaced_at_once_with_the_sessions_that_it_opened(tokens: Tokens) -> None:
    tokens.open_session(SESSION, deed("log_in", 110.0), shown=TOKEN.digest)
    rotated = tokens.rotate(TOKEN.id, "2" * 64, old_until=120.0, deed=deed("rotate_token", 120.0))
    assert rotated.digests(120.0) == ("2" * 64,)
    assert tokens.sessions(120.0) == []


def test_a_session_lasts_no_longer_than_the_secret_that_opened_it(tokens: Tokens) -> None:
    tokens.rotate(TOKEN.id, "2" * 64, old_until=140.0, deed=deed("rotate_token", 105.0))
    for shown, cookie in ((TOKEN.digest, "5"), ("2" * 64, "6"), ("9" * 64, "7")):  # the last was replaced long ago
        tokens.open_session(replace(SESSION, digest=cookie * 64), deed("log_in", 110.0), shown=shown)
    opened = {session.digest[0]: session.expires_at for session in tokens.sessions(110.0)}
    assert opened == {"5": 140.0, "6": 150.0}


def test_what_is_not_there_or_spent_is_told(tokens: Tokens, database: Database) -> None:
    with pytest.raises(UnknownTokenError, match="there is no token 'nope'"):
        tokens.revoke("nope", deed("revoke_token", 120.0))
    with pytest.raises(UnknownTokenError, match="there is no token 'nope'"):
        tokens.rotate("nope", "2" * 64, old_until=0.0, deed=deed("rotate_token", 120.0))
    with pytest.raises(SpentTokenError, match="Ab12Cd34 is revoked or has expired"):
        tokens.rotate(TOKEN.id, "2" * 64, old_until=300.0, deed=deed("rotate_token", 250.0))
    assert actions(database) == ["create_token"]


def test_the_last_use_is_noted_without_a_row_in_the_audit_log(tokens: Tokens, database: Database) -> None:
    tokens.used({TOKEN.id: 130.0, "nope": 130.0})
    assert tokens.all() == [replace(TOKEN, last_used_at=130.0)]
    assert actions(database) == ["create_token"]


def test_sessions_expire_and_are_closed(tokens: Tokens, database: Database) -> None:
    tokens.open_session(SESSION, deed("log_in", 110.0), shown=TOKEN.digest)
    assert tokens.sessions(149.9) == [SESSION]
    assert tokens.sessions(150.0) == []
    later = replace(SESSION, digest="6" * 64, created_at=160.0, expires_at=170.0)
    tokens.open_session(later, deed("log_in", 160.0), shown=TOKEN.digest)
    assert tokens.sessions(0.0) == [later]
    tokens.close_session(later.digest, deed("log_out", 165.0))
    tokens.close_session(later.digest, deed("log_out", 166.0))
    assert tokens.sessions(0.0) == []
    assert actions(database) == ["create_token", "log_in", "log_in", "log_out"]
