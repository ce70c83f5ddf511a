"""The audit log: one chain of everything that was done, each link holding the hash of the one before.

A row's hash is the SHA-256 of the canonical JSON of all its other columns, so that no row can be changed, left out,
added or moved without breaking the chain from there on. What a chain alone cannot tell is whether its end was cut off,
or all of it was written anew: for that, note its head elsewhere now and then (`Head`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import Connection, func, insert, select

from trimtab.agent.changes import AGENT
from trimtab.storage.database import Database
from trimtab.storage.tables.access import MAX_IP_LENGTH, MAX_NAME_LENGTH, AuditRow
from trimtab.storage.values import Origin

FIRST = "0" * 64
"""What the first link holds in the place of a hash."""
LOCK = 0x7472696D74616201
"""Key of the advisory lock under which PostgreSQL's writers take turns."""
CHUNK = 500
BY_AGENT = Origin(actor=AGENT)
"""Of what no person asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What was done, before it is on record."""

    action: str
    """In one word, such as `kill` or `rolled_back`."""
    at: float
    """Unix seconds."""
    origin: Origin
    job: str | None = None
    reason: str = ""
    generation: int | None = None
    """Of the job's desired controls, where it made a new one."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Plain JSON data; `before` and `after` where something was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One row of the log."""

    number: int
    """From 1, without gaps: the cursor of pagination."""
    at: float
    """Unix seconds."""
    actor: str
    """Name of the token; `local` for whoever is on the service's machine, `agent` for the agent itself."""
    token: str
    """Id of the token; empty without one."""
    ip: str
    action: str
    job: str | None
    reason: str
    generation: int | None
    detail: str
    """JSON, as it was hashed."""
    previous: str
    """Hash of the row before."""
    hash: str

    def computed(self) -> str:
        """What its hash has to be."""
        columns = {name: value for name, value in asdict(self).items() if name != "hash"}
        return hashlib.sha256(_canonical(columns).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The end of the chain at some time: what to note elsewhere."""

    number: int
    """0 for an empty log."""
    hash: str


class BrokenChainError(ValueError):
    """The log is not what was written; `number` is the first row that does not fit."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"row {number}: {reason}")
        self.number = number


def append(connection: Connection, deeds: Sequence[Deed]) -> None:
    """Put deeds on record, in the caller's transaction.

    It belongs at the transaction's end: on PostgreSQL, every other writer of the log waits from here on.
    """
    if not deeds:
        return
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(LOCK)))
    end = head(connection)
    rows = []
    for deed in deeds:
        link = _link(end, deed)
        rows.append(asdict(link))
        end = Head(number=link.number, hash=link.hash)
    connection.execute(insert(AuditRow), rows)


def line(link: Link) -> str:
    """The row as a line of JSON, in which `detail` is data and no text."""
    return _canonical({**asdict(link), "detail": json.loads(link.detail)})


def link_of(text: str) -> Link:
    """The row that a line of JSON is. Raises `ValueError` where it is none."""
    try:
        columns = json.loads(text)
        return Link(**{**columns, "detail": _canonical(columns["detail"])})
    except (TypeError, KeyError) as error:
        raise ValueError(f"not a row of an audit log ({error})") from error


def head(connection: Connection) -> Head:
    """The end of the chain."""
    last = connection.execute(select(AuditRow.number, AuditRow.hash).order_by(AuditRow.number.desc()).limit(1)).first()
    return Head(number=0, hash=FIRST) if last is None else Head(number=last.number, hash=last.hash)


def verified(links: Iterable[Link], noted: Sequence[Head] = ()) -> Head:
    """Walk the chain from its first row; its end.

    Raises:
        BrokenChainError: a row was changed, is missing or was put in; or a head that was noted earlier is not in it.
    """
    due = {one.number: one.hash for one in noted}
    end = Head(number=0, hash=FIRST)
    for link in links:
        if link.number != end.number + 1:
            raise BrokenChainError(end.number + 1, f"it is missing, and row {link.number} follows")
        if link.previous != end.hash:
            raise BrokenChainError(link.number, "it does not follow on the row before it")
        if link.hash != link.computed():
            raise BrokenChainError(link.number, "its content is not what was hashed")
        if due.pop(link.number, link.hash) != link.hash:
            raise BrokenChainError(link.number, "it has another hash than the one that was noted")
        end = Head(number=link.number, hash=link.hash)
    for number in sorted(set(due) - {0}):
        raise BrokenChainError(number, f"it was noted, and the log ends with row {end.number}")
    return end


class Audit:
    """Reading the log."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, *, after: int = 0, limit: int, job: str | None = None) -> list[Link]:
        """Rows with a larger number, ascending; only those of a job, where one is named."""
        statement = select(*AuditRow.__table__.columns).where(AuditRow.number > after)
        if job is not None:
            statement = statement.where(AuditRow.job == job)
        with self._database.read() as connection:
            rows = connection.execute(statement.order_by(AuditRow.number).limit(limit)).mappings()
            return [Link(**row) for row in rows]

    def links(self) -> Iterator[Link]:
        """The whole log, ascending, each stretch in a transaction of its own: nobody waits for a slow reader."""
        after = 0
        while page := self.page(after=after, limit=CHUNK):
            yield from page
            after = page[-1].number

    def append(self, deed: Deed) -> None:
        """Put one deed on record, in a transaction of its own."""
        with self._database.write() as connection:
            append(connection, [deed])


def _link(end: Head, deed: Deed) -> Link:
    unsigned = Link(
        number=end.number + 1,
        at=float(deed.at),
        actor=deed.origin.actor[:MAX_NAME_LENGTH],
        token=deed.origin.token,
        ip=deed.origin.ip[:MAX_IP_LENGTH],
        action=deed.action,
        job=deed.job,
        reason=deed.reason,
        generation=deed.generation,
        detail=_canonical(deed.detail),
        previous=end.hash,
        hash="",
    )
    return Link(**{**asdict(unsigned), "hash": unsigned.computed()})


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
