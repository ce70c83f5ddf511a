"""Every endpoint is refused without its scope: the table against the routes that there really are."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from access_runs import UNLIMITED, bearing, issued

from trimtab.api.access.scopes import ADMIN, ENDPOINTS, GRANTS, INGEST, OPEN, Scope
from trimtab.api.app import create_app
from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.api.settings import Settings

SUMMARY = {"job": "run", "attempt": 1, "step": 0}


def endpoints_of_app(tmp_path: Path) -> set[str]:
    service = Service.open(tmp_path / "endpoints.db")
    paths = create_app(service).openapi()["paths"]
    service.close()
    return {f"{method.upper()} {path}" for path in paths for method in paths[path]}


def nameless(endpoint: str) -> str:
    return re.sub(r"\{\w+\}", "{}", endpoint)


def test_no_endpoint_is_missing_from_the_table_and_none_is_made_up(tmp_path: Path) -> None:
    there = set(map(nameless, endpoints_of_app(tmp_path))) | {"GET /", "GET /openapi.json"}
    assert there == set(map(nameless, ENDPOINTS))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[Scope | None, str | None]]]:
    """A service with a job, and a token of each scope."""
    service = Service.open(tmp_path_factory.mktemp("scopes") / "agent.db")
    held: dict[Scope | None, str | None] = {scope: issued(service, scope) for scope in Scope}
    service.register("run", config=None, mode=None, issuer="test", reason="test")
    with running(service, settings=Settings(access=UNLIMITED)) as url:
        yield url, {**held, None: None}
    service.close()


def concrete(endpoint: str) -> tuple[str, str]:
    """A request for an endpoint, for the job `run` and things that there are not."""
    method, path = endpoint.split(" ")
    return method, re.sub(r"\{\w+\}", "x", path.replace("{job}", "run"))


@pytest.mark.parametrize("held", [None, *Scope])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_an_endpoint_is_refused_without_its_scope_and_not_with_it(
    served: tuple[str, dict[Scope | None, str | None]], endpoint: str, held: Scope | None
) -> None:
    url, tokens = served
    needed = ENDPOINTS[endpoint]
    may = needed == OPEN or (held is not None and bool(GRANTS[held] & needed))
    method, path = concrete(endpoint)
    content = {} if method in ("POST", "PUT", "PATCH") else None
    with bearing(url, tokens[held]) as http, http.stream(method, path, json=content) as response:
        if not (may and endpoint == "GET /v1/stream"):  # an answer without end
            response.read()
            told = response.text[:500]
    if may:
        assert response.status_code not in (401, 403, 429, 500), f"{endpoint} with {held}"
        return
    assert response.status_code == (401 if held is None else 403), f"{endpoint} with {held}: {told}"
    (problem,) = response.json()["errors"]
    assert problem["field"] == "Authorization"
    if held is None:
        assert response.headers["www-authenticate"] == "Bearer"
        assert problem["message"].startswith("a token is needed")
    else:
        assert f"the token 'the {held} token' has {held}" in problem["message"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
@pytest.mark.parametrize(
    "path", ["/v1/nowhere", "/v1/jobs/run/health/", "/v1/jobs/run/nowhere", "/static", "//v1/jobs"]
)
def test_what_is_in_no_table_is_refused_to_all_but_admins(
    served: tuple[str, dict[Scope | None, str | None]], method: str, path: str
) -> None:
    url, tokens = served
    for held, status in ((None, 401), (Scope.CONTROL, 403)):
        with bearing(url, tokens[held]) as http:
            assert http.request(method, url + path).status_code == status
    with bearing(url, tokens[Scope.ADMIN]) as http:
        assert http.request(method, url + path).status_code in (307, 404, 405)


def test_the_body_of_a_stranger_is_not_read(served: tuple[str, dict[Scope | None, str | None]]) -> None:
    url, _ = served
    with bearing(url, None) as http:
        response = http.post("/v1/summaries", content=b"\xff{not json", headers={"content-type": "application/json"})
    assert response.status_code == 401


def test_a_trainers_token_is_for_its_job_alone(service: Service, url: str, held: dict[Scope, str]) -> None:
    batch = [SUMMARY | {"step": 1}, SUMMARY | {"job": "other"}]
    with bearing(url, held[Scope.INGEST]) as http:
        assert http.put("/v1/jobs/run", json={}).status_code == 200
        assert http.post("/v1/summaries", json=SUMMARY).json()["result"] == "stored"
        for refused in (
            http.post("/v1/summaries", json=SUMMARY | {"job": "other"}),
            http.put("/v1/jobs/other", json={}),
        ):
            assert refused.status_code == 403
            (problem,) = refused.json()["errors"]
            assert (problem["field"], problem["value"]) == ("job", "other")
            assert "this token is for the job 'run'" in problem["message"]
        first, second = http.post("/v1/summaries/batch", json=batch).json()["results"]
        assert (first["result"], second["result"]) == ("stored", "invalid")
        assert "this token is for the job 'run'" in second["errors"][0]["message"]
    assert [job.name for job in service.store.jobs()] == ["run"]


def test_an_admin_may_report_for_any_job(admin: httpx.Client) -> None:
    assert admin.post("/v1/summaries", json=SUMMARY | {"job": "other"}).status_code == 200


@pytest.mark.parametrize("mode", ["advise", "approve", "auto"])
def test_a_trainers_token_sets_no_mode(service: Service, url: str, held: dict[Scope, str], mode: str) -> None:
    with bearing(url, held[Scope.INGEST]) as http:
        response = http.put("/v1/jobs/run", json={"mode": mode})
        assert response.status_code == 403
        assert response.json()["errors"][0]["field"] == "mode"
        assert http.put("/v1/jobs/run", json={"mode": "observe"}).status_code == 403
        response = http.put("/v1/jobs/run", json={"config": {"mode": mode}})
        assert (response.status_code, response.json()["errors"][0]["field"]) == (403, "config.mode")
    assert service.store.jobs() == []


def test_the_table_has_no_secrets_among_what_is_open() -> None:
    assert {endpoint for endpoint, needed in ENDPOINTS.items() if needed == OPEN} == {
        "GET /",
        "GET /livez",
        "GET /readyz",
        "GET /openapi.json",
        "GET /v1/session",
        "POST /v1/session",
        "DELETE /v1/session",
    }
    changing = {endpoint: needed for endpoint, needed in ENDPOINTS.items() if not endpoint.startswith("GET")}
    assert not any(needed & {Scope.READ} for needed in changing.values())
    assert all(
        needed == ADMIN for endpoint, needed in ENDPOINTS.items() if re.search("tokens|webhooks|audit", endpoint)
    )
    assert {endpoint for endpoint, needed in ENDPOINTS.items() if needed >= INGEST} == {
        "POST /v1/summaries",
        "POST /v1/summaries/batch",
        "PUT /v1/jobs/{job}",
    }
