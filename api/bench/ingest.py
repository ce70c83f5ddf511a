"""How many step summaries a second a server takes in, all that it makes of them included, beside loggers of scalars."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from trimtab.api.bench.bodies import ENCODINGS, Summaries
from trimtab.api.bench.load import Driven, Load, Target, drive
from trimtab.api.bench.peers import PEERS, Peer
from trimtab.api.bench.servers import agent
from trimtab.hooks.records import StepSummary
from trimtab.storage.database import Database
from trimtab.storage.store import Store

TOGETHER = 16
"""Summaries in one request of a batch."""
REPLICAS = 2
"""Processes on one PostgreSQL database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRate:
    """What one server took under one load."""

    server: str
    requests: str
    """What was in each."""
    summaries_per_second: float
    p50_ms: float
    p99_ms: float
    """Of a request."""
    ratio: float
    """Of the rate of the first load in the same run, trimtab's single summaries on SQLite, to this rate."""


class LostError(RuntimeError):
    """The ledger does not hold exactly what was acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One load on one kind of server."""

    server: str
    requests: str
    measure: Callable[[Path], Driven]
    """In an empty folder."""


def bench_ingest(cases: Iterable[Case], on_case: Callable[[], None] = lambda: None) -> list[IngestRate]:
    """Measure one load after another; `on_case` is called after each.

    Raises:
        LoadError: a request was refused.
        LostError: the ledger does not hold exactly what was acknowledged.
        ServerError, PeerError: a server did not start, or could not be installed.
    """
    first, rates = 0.0, []
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder:
            driven = case.measure(Path(folder))
        first = first or driven.per_second
        rates.append(
            IngestRate(
                server=case.server,
                requests=case.requests,
                summaries_per_second=driven.per_second,
                p50_ms=driven.p50_ms,
                p99_ms=driven.p99_ms,
                ratio=first / driven.per_second,
            )
        )
        on_case()
    return rates


def ingest_cases(
    seconds: float, jobs: int, steps: list[StepSummary], *, postgres: str = "", peers: Path | None = None
) -> Iterator[Case]:
    """Loads from another process over loopback, that of single summaries on SQLite first.

    Args:
        seconds: of each load.
        jobs: that report at once, each over a connection of its own, as fast as they are answered.
        steps: that they report, over and over.
        postgres: URL of an empty PostgreSQL database for two replicas, half of the jobs to each; empty for none.
        peers: folder for the environments of other loggers, which are made on first use; None for none.
    """
    for together in (1, TOGETHER):
        for encoding in ENCODINGS:
            yield _on_trimtab(seconds, jobs, steps, together, encoding)
    if postgres:
        for together in (1, TOGETHER):
            yield _on_trimtab(seconds, jobs, steps, together, "identity", postgres)
    if peers is not None:
        for peer in PEERS:
            yield _on_peer(seconds, jobs, steps, peer, peers)


def _on_trimtab(
    seconds: float, jobs: int, steps: list[StepSummary], together: int, encoding: str, postgres: str = ""
) -> Case:
    target = Summaries.of(f"bench-{secrets.token_hex(4)}", steps, together=together, encoding=encoding)

    def measure(folder: Path) -> Driven:
        db, replicas = (postgres, REPLICAS) if postgres else (str(folder / "bench.db"), 1)
        with ExitStack() as servers:
            urls = [servers.enter_context(agent(db, folder)).url for _ in range(replicas)]
            driven = drive(target, Load(urls=urls, jobs=jobs, seconds=seconds))
        check_ledger(db, target, driven)
        return driven

    server = f"PostgreSQL, {REPLICAS} processes" if postgres else "SQLite, 1 process"
    packing = "" if encoding == "identity" else f", {encoding}"
    return Case(
        server=f"trimtab, {server}",
        requests=f"{together} {'summary' if together == 1 else 'summaries'}{packing}",
        measure=measure,
    )


def _on_peer(seconds: float, jobs: int, steps: list[StepSummary], peer: Peer, folder: Path) -> Case:
    def measure(work: Path) -> Driven:
        with peer.served(folder, work) as server:
            target: Target = peer.target(server.url, jobs, steps)
            return drive(target, Load(urls=[server.url], jobs=jobs, seconds=seconds))

    return Case(server=peer.title, requests="the scalars of 1 step", measure=measure)


def check_ledger(db: str, target: Summaries, driven: Driven) -> None:
    """Raise `LostError` unless each job's ledger has as many rows as were acknowledged."""
    database = Database(db)
    try:
        rows = {job.name: job.rows for job in Store(database).jobs()}
    finally:
        database.close()
    for job, taken in enumerate(driven.by_job):
        held = rows.get(target.name(job), 0)
        if held != taken:
            raise LostError(f"{target.name(job)}: {taken} summaries were acknowledged, and the ledger holds {held}")
