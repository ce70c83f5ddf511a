"""`trimtab token`: who may ask for what."""

from __future__ import annotations

import getpass
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Protocol

import typer

from trimtab.api.access.issuing import OVERLAP_S, Issuing, TokenRuleError
from trimtab.api.access.scopes import Scope
from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.options import AsJson, Token, Url
from trimtab.api.cli.screen import Console
from trimtab.api.cli.tables import as_wide_as_shown, moment, table_of
from trimtab.api.client import DEFAULT_URL, Client
from trimtab.api.routes.tokens import Issued, TokenList, TokenView, token_view
from trimtab.hooks.records import RecordError
from trimtab.storage.database import Database
from trimtab.storage.engine import missing_file
from trimtab.storage.tokens import SpentTokenError, Tokens, UnknownTokenError
from trimtab.storage.values import Origin

token = typer.Typer(help="Make, list, replace and revoke tokens.", add_completion=False, no_args_is_help=True)

UNITS = {"m": 60, "h": 3600, "d": 86_400}
Db = Annotated[
    str | None,
    typer.Option(
        envvar="TRIMTAB_DB",
        help="Work on this database itself (file or URL) and not through a service: the way to the first token.",
    ),
]
Id = Annotated[str, typer.Argument(help="The token's id, the part between its underscores.")]
Why = Annotated[str, typer.Option(help="Why, for the audit log.")]


@token.command()
def create(
    name: Annotated[str, typer.Argument(help="Who will hold it, for lists and the audit log.")],
    scope: Annotated[list[Scope], typer.Option(help="What it is for; may be repeated.")],
    job: Annotated[str | None, typer.Option(help="The job that a trainer's token (ingest) is for.")] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="SPAN", help="How long it lasts, such as 90d, 12h or 30m; for good without.")
    ] = None,
    db: Db = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Make a token. It is printed, alone, on standard output, and shown this once."""
    expires_in = None if expires is None else _seconds("expires", expires)
    with _desk(db, url, token, make=True) as desk:
        _show(desk.create_token(name, scope, job=job, expires_in=expires_in), as_json)


@token.command("list")
def list_tokens(db: Db = None, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """List every token that there ever was, without secrets."""
    with _desk(db, url, token) as desk:
        tokens = desk.tokens()
    if as_json:
        print(TokenList(tokens=tokens).model_dump_json())
        return
    table = table_of("id", "name", "scopes", "job", "standing", "expires", "used", whole="id")
    for one in tokens:
        used, expires = _day(one.last_used_at, "never"), _day(one.expires_at, "never")
        table.add_row(one.id, one.name, " ".join(one.scopes), one.job or "any", one.standing.value, expires, used)
    as_wide_as_shown().print(table, highlight=False)


@token.command()
def rotate(
    id: Id,
    overlap: Annotated[
        str, typer.Option(metavar="SPAN", help="How long the old secret is taken still, such as 12h; 0m ends it now.")
    ] = f"{OVERLAP_S // 3600}h",
    reason: Why = "",
    db: Db = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Give a token a new secret, which is printed, alone, on standard output, and shown this once."""
    with _desk(db, url, token) as desk:
        _show(desk.rotate_token(id, overlap=_seconds("overlap", overlap), reason=reason), as_json)


@token.command()
def revoke(
    id: Id,
    reason: Why = "",
    db: Db = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Let nobody in with a token any more."""
    with _desk(db, url, token) as desk:
        revoked = desk.revoke_token(id, reason=reason)
    if as_json:
        print(revoked.model_dump_json())
        return
    told = f"{revoked.id} ({revoked.name}) lets nobody in any more; running services know within seconds"
    Console().print(told, highlight=False, soft_wrap=True)


class _Desk(Protocol):
    """Where tokens are made: the service, or the database itself."""

    def tokens(self) -> list[TokenView]: ...

    def create_token(
        self, name: str, scopes: Sequence[Scope], *, job: str | None, expires_in: float | None
    ) -> Issued: ...

    def rotate_token(self, id: str, *, overlap: float, reason: str) -> Issued: ...

    def revoke_token(self, id: str, *, reason: str) -> TokenView: ...


class _AtDatabase:
    """For whoever can write to the database, and so could do anything anyway."""

    def __init__(self, database: Database) -> None:
        self._stored = Tokens(database)
        self._issuing = Issuing(self._stored, time.time)
        self._origin = Origin(actor=f"local ({getpass.getuser()})")

    def tokens(self) -> list[TokenView]:
        now = time.time()
        return [token_view(one, now) for one in self._stored.all()]

    def create_token(self, name: str, scopes: Sequence[Scope], *, job: str | None, expires_in: float | None) -> Issued:
        stored, fresh = self._issuing.create(name, scopes, job=job, expires_in=expires_in, origin=self._origin)
        return Issued(token=fresh.text, about=token_view(stored, time.time()))

    def rotate_token(self, id: str, *, overlap: float, reason: str) -> Issued:
        stored, fresh = self._issuing.rotate(id, overlap=overlap, reason=reason, origin=self._origin)
        return Issued(token=fresh.text, about=token_view(stored, time.time()))

    def revoke_token(self, id: str, *, reason: str) -> TokenView:
        return token_view(self._issuing.revoke(id, reason=reason, origin=self._origin), time.time())


@contextmanager
def _desk(db: str | None, url: str, token: str | None, *, make: bool = False) -> Iterator[_Desk]:
    if db is None:
        with Client(url, token) as client:
            yield client
        return
    missing = missing_file(db)
    if missing is not None and not make:
        raise UsageError(f"db: there is no file {missing}")
    database = Database(db)
    try:
        database.migrate()
        yield _AtDatabase(database)
        if missing is not None:
            told = f"{Path(missing).absolute()} was not there, and is new; it is the one to serve"
            Console(stderr=True, soft_wrap=True).print(told, highlight=False)
    except (TokenRuleError, RecordError, UnknownTokenError, SpentTokenError) as error:
        raise UsageError(str(error)) from error
    finally:
        database.close()


def _show(issued: Issued, as_json: bool) -> None:
    if as_json:
        print(issued.model_dump_json())
        return
    print(issued.token, flush=True)
    about = issued.about
    what = (
        f"{' and '.join(about.scopes)} for {about.job or 'every job'}, until {_day(about.expires_at, 'it is revoked')}"
    )
    overlap = f"; the old secret is taken until {_day(about.old_secret_until, '')}" if about.old_secret_until else ""
    told = f"{about.name}: {what}{overlap}. Keep it now: it is not shown again."
    Console(stderr=True, soft_wrap=True).print(told, highlight=False)


def _seconds(option: str, text: str) -> float:
    match = re.fullmatch(r"(\d{1,6})([mhd])", text)
    if match is None:
        raise UsageError(f"{option}: {text!r} is no span of time; give one such as 90d, 12h or 30m")
    return float(match[1]) * UNITS[match[2]]


def _day(at: float | None, otherwise: str) -> str:
    return otherwise if at is None else moment(at)
