"""Whoever asks too often is told when to come again."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from access_runs import bearing, issued

from trimtab.api.access.doorman import AccessSettings
from trimtab.api.access.limits import Limits, Rate
from trimtab.api.access.scopes import Scope
from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.api.settings import Settings
from trimtab.hooks.layout import Report
from trimtab.hooks.records import StepSummary
from trimtab.hooks.transport.http import HttpTransport
from trimtab.storage.audit import Audit

NEVER = 1e-9
"""A rate at which no second request passes while a test runs."""
WRONG = "ttb_Ab12Cd34_" + "x" * 43


@contextmanager
def limited(service: Service, **rates: Rate) -> Iterator[str]:
    with running(service, settings=Settings(access=AccessSettings(limits=Limits(**rates)))) as url:
        yield url


def statuses(http: httpx.Client, times: int, path: str = "/v1/jobs/run/kill") -> list[int]:
    return [http.post(path, json={"reason": "enough"}).status_code for _ in range(times)]


def test_each_token_has_a_pace_of_its_own(service: Service) -> None:
    service.register("run", config=None, mode=None, issuer="test", reason="test")
    with limited(service, control=Rate(per_second=1 / 1000, burst=2)) as url:
        first, second = issued(service, Scope.CONTROL), issued(service, Scope.ADMIN)
        with bearing(url, first) as http:
            assert statuses(http, 3) == [200, 200, 429]
            refused = http.post("/v1/jobs/run/kill", json={"reason": "enough"})
            assert 990 < int(refused.headers["retry-after"]) <= 1000
            assert refused.json()["errors"][0]["message"].startswith("too many requests with this token; again in ")
            assert [http.get("/v1/jobs").status_code for _ in range(20)] == [200] * 20
        with bearing(url, second) as http:
            assert statuses(http, 3) == [200, 200, 429]


def test_summaries_have_a_pace_of_their_own(service: Service) -> None:
    with limited(service, ingest=Rate(per_second=NEVER, burst=3), control=Rate(per_second=NEVER, burst=1)) as url:
        with bearing(url, issued(service, Scope.INGEST)) as http:
            assert http.put("/v1/jobs/run", json={}).status_code == 200
            summaries = [{"job": "run", "attempt": 1, "step": step} for step in range(3)]
            assert [http.post("/v1/summaries", json=one).status_code for one in summaries] == [200, 200, 429]
        with bearing(url, issued(service, Scope.ADMIN)) as http:
            assert http.post("/v1/summaries", json=summaries[0]).status_code == 200
            assert statuses(http, 2) == [200, 429]
            assert http.post("/v1/summaries", json=summaries[1]).status_code == 200


def test_whoever_is_on_the_machine_without_tokens_is_not_held_up(service: Service) -> None:
    service.register("run", config=None, mode=None, issuer="test", reason="test")
    with limited(service, control=Rate(per_second=NEVER, burst=1)) as url, bearing(url, None) as http:
        assert statuses(http, 3) == [200, 200, 200]


def test_wrong_tokens_are_held_up_and_never_hold_up_right_ones(service: Service) -> None:
    token = issued(service, Scope.READ)
    with limited(service, failures=Rate(per_second=1 / 1000, burst=3)) as url, bearing(url, None) as http:
        wrong = {"Authorization": f"Bearer {WRONG}"}
        assert [http.get("/v1/jobs", headers=wrong).status_code for _ in range(2)] == [401, 401]
        tries = [http.post("/v1/session", json={"token": WRONG}) for _ in range(2)]
        assert [one.status_code for one in tries] == [401, 429]
        assert 990 < int(tries[1].headers["retry-after"]) <= 1000
        assert http.get("/v1/jobs", headers=wrong).status_code == 429
        assert http.get("/v1/jobs").status_code == 401
        assert http.get("/v1/jobs", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        assert http.post("/v1/session", json={"token": token}).status_code == 200


def test_a_token_that_is_refused_over_and_over_is_on_record_once(service: Service) -> None:
    issued(service, Scope.READ)
    with running(service) as url, bearing(url, WRONG) as http:
        for _ in range(8):
            http.get("/v1/jobs")
    assert [link.action for link in Audit(service.database).links()].count("token_refused") == 1


def test_a_trainer_that_is_too_fast_waits_and_loses_nothing(service: Service) -> None:
    with limited(service, ingest=Rate(per_second=4, burst=2)) as url:
        transport = HttpTransport(url, token=issued(service, Scope.INGEST, job="run"))
        for step in range(6):
            transport.send(Report(StepSummary(job="run", attempt=1, step=step)))
        give_up = time.monotonic() + 30
        while stored(service) < 6:
            assert time.monotonic() < give_up
            time.sleep(0.02)
        transport.close(2)
    assert (transport.rejected, transport.dropped) == (0, 0)
    assert [entry.step for entry in service.store.recorded("run").entries] == list(range(6))


def stored(service: Service) -> int:
    return sum(job.rows for job in service.store.jobs())
