"""Alerts, endpoints and a worker for them, on a clock that tests set."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from receivers import Receiver

from trimtab.api.notify.posting import Poster
from trimtab.api.notify.shapes import SHAPES
from trimtab.api.notify.signing import new_secret
from trimtab.api.notify.ssrf import Policy
from trimtab.api.notify.worker import AlertWorker
from trimtab.storage import outbox
from trimtab.storage.alert import Alert, AlertKind, AlertPhase, Severity, fingerprint
from trimtab.storage.database import Database
from trimtab.storage.deliveries import Deliveries
from trimtab.storage.delivery import Delivery, Status
from trimtab.storage.endpoints import Endpoint, Endpoints, Timing
from trimtab.storage.groups import Due
from trimtab.storage.inserts import jobs
from trimtab.storage.queries import job_id
from trimtab.storage.told import Told
from trimtab.storage.values import NewEvent, Origin

START = 1_800_000_000.0
LOOPBACK = Policy(http=True, private=(ipaddress.ip_network("127.0.0.0/8"),))
PROMPT = Timing(group_wait=0.0, group_interval=60.0, repeat_interval=3600.0)
SECRET = new_secret()
FIRING = ("alerts.firing", [("reward", "firing")])
"""What `told` gives of a message that says that the reward's incident fires."""
RESOLVED = ("alerts.resolved", [("reward", "resolved")])


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


def alert(name: str = "reward", job: str = "run", **changes: Any) -> Alert:
    """An incident that fires."""
    kind = changes.pop("kind", AlertKind.INCIDENT)
    made = Alert(
        job=job,
        fingerprint=fingerprint(job, kind, name),
        kind=kind,
        name=name,
        severity=Severity.WARNING,
        phase=AlertPhase.FIRING,
        summary=f"{name} is wrong",
        attempt=1,
        step=10,
        starts_at=START,
    )
    return replace(made, **changes)


def over(one: Alert, at: float = START + 100) -> Alert:
    """The alert, resolved."""
    return replace(one, phase=AlertPhase.RESOLVED, ends_at=at)


def endpoint(url: str = "https://example.com/hook", **changes: Any) -> Endpoint:
    """An endpoint that wants everything, told at once."""
    made = Endpoint(
        id="ep_1",
        name="team",
        shape="trimtab",
        url=url,
        severity=Severity.INFO,
        kinds=tuple(AlertKind),
        timing=PROMPT,
        secret=SECRET,
        created_at=START,
    )
    made = replace(made, **changes)
    return replace(made, kinds=tuple(kind for kind in made.kinds if kind in SHAPES[made.shape].kinds))


def due(*alerts: Alert, told: Told | None = None, told_at: float | None = None, **changes: Any) -> Due:
    """A group that is due."""
    made = Due(
        endpoint=endpoint(),
        job="run",
        alerts=alerts,
        told=told or Told(),
        told_at=told_at,
        undelivered=frozenset(),
        reported_at=START + 1e6,
    )
    return replace(made, **changes)


def firing(detector: str = "reward", *, severity: str = "warn", step: int = 10, **detail: Any) -> NewEvent:
    """An incident begins to fire."""
    told = {"detector": detector, "severity": severity, "evidence": {"mean": 0.25}, "likely_cause": "the reward"}
    return event("incident_firing", f"{detector} is wrong", step=step, **told, **detail)


def resolved(detector: str = "reward", *, step: int = 40) -> NewEvent:
    """An incident is over."""
    return event("incident_resolved", f"{detector} is right again", step=step, detector=detector)


def event(kind: str, message: str = "because", *, step: int = 10, **detail: Any) -> NewEvent:
    """An event of the first attempt."""
    return NewEvent(kind=kind, attempt=1, step=step, message=message, detail=json.dumps(detail))


class Office:
    """A database with one job, the worker that tells people of it, and a clock."""

    def __init__(self, url: str, clock: Clock | None = None, **worker: Any) -> None:
        self.database = Database(url)
        self.database.migrate()
        self.clock = clock or Clock()
        self.endpoints, self.deliveries = Endpoints(self.database), Deliveries(self.database)
        self.attempts: list[tuple[str, str]] = []
        self._worker = worker

    def add(self, receiver: Receiver | str, **changes: Any) -> Endpoint:
        """An endpoint at a receiver."""
        url = receiver if isinstance(receiver, str) else receiver.url
        made = endpoint(url, **{"created_at": self.clock(), **changes})
        self.endpoints.add(made, origin=Origin(), reason="test")
        return made

    def happen(self, *events: NewEvent, job: str = "run") -> None:
        """Put events of a job where the ledger puts them."""
        with self.database.write() as connection:
            jobs(connection, [job], "{}", self.clock())
            outbox.enqueue(connection, job_id(connection, job), job, events, self.clock())

    def report(self, job: str = "run") -> None:
        """Have the job send something, now."""
        with self.database.write() as connection:
            connection.exec_driver_sql(
                "INSERT INTO ledger (job_id, seq, kind, payload, digest, received_at) "
                f"VALUES ({job_id(connection, job)}, {int(self.clock())}, 'summary', '', '', {self.clock()})"
            )

    def work(self, *, seconds: float = 0.0) -> None:
        """Let time pass, and a fresh worker do everything that is due then."""
        self.clock.pass_(seconds)
        asyncio.run(self.worked())

    async def worked(self) -> None:
        """Have a fresh worker do everything that is due."""
        poster = Poster(LOOPBACK)
        async with poster:
            await self.worker(poster).settle()

    def worker(self, poster: Poster, **changes: Any) -> AlertWorker:
        """A worker that waits as long as the schedule allows."""
        options: dict[str, Any] = {"clock": self.clock, "draw": lambda: 1.0, "on_delivery": self._delivered}
        return AlertWorker(self.database, poster, **(options | self._worker | changes))

    def log(self, endpoint: str = "ep_1") -> list[Delivery]:
        """Every delivery to an endpoint, the oldest first."""
        return self.deliveries.page(endpoint, limit=1000)[::-1]

    def statuses(self) -> list[tuple[Status, int, int | None]]:
        """Of every delivery to the first endpoint: what became of it, attempts, and the last answer."""
        return [(one.status, one.attempts, one.answer) for one in self.log()]

    def wait_until_held_up(self, transactions: int = 1) -> None:
        """Wait until so many transactions wait for a lock that another has, on PostgreSQL."""
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            with self.database.read() as connection:
                held_up = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                held_up += " AND datname = current_database()"
                if connection.exec_driver_sql(held_up).scalar_one() >= transactions:
                    return
        raise AssertionError("nobody waits")

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def _delivered(self, shape: str, result: str, _seconds: float) -> None:
        self.attempts.append((shape, result))


def told(requests: Sequence[Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The type of each message in our own shape, with name and status of each of its alerts."""
    return [
        (body["type"], [(one["name"], one["status"]) for one in body["data"]["alerts"]])
        for body in (request.json for request in requests)
    ]
