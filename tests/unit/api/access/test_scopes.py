"""Who may do what."""

import re

import pytest

from trimtab.api.access.principal import Principal, local_person, stranger
from trimtab.api.access.scopes import ADMIN, CONTROL, ENDPOINTS, INGEST, OPEN, READ, Scope, Table


@pytest.mark.parametrize(
    ("held", "may"),
    [
        (Scope.READ, {Scope.READ}),
        (Scope.INGEST, {Scope.INGEST}),
        (Scope.CONTROL, {Scope.READ, Scope.CONTROL}),
        (Scope.ADMIN, set(Scope)),
    ],
)
def test_what_a_scope_grants(held: Scope, may: set[Scope]) -> None:
    person = Principal(name="ada", scopes=frozenset({held}), ip="")
    assert {scope for scope in Scope if person.may(scope)} == may


def test_whoever_is_on_the_machine_may_everything_and_a_stranger_nothing() -> None:
    assert {scope for scope in Scope if local_person("127.0.0.1").may(scope)} == set(Scope)
    assert {scope for scope in Scope if stranger("192.0.2.1").may(scope)} == set()


@pytest.mark.parametrize(
    ("request_line", "needed"),
    [
        ("GET /livez", OPEN),
        ("HEAD /livez", OPEN),
        ("POST /v1/summaries", INGEST),
        ("PUT /v1/jobs/run-1", INGEST | CONTROL),
        ("GET /v1/jobs", READ),
        ("HEAD /v1/jobs", READ),
        ("GET /v1/jobs/run-1/health", READ),
        ("GET /v1/jobs/health/health", READ),
        ("PATCH /v1/jobs/run-1/controls", CONTROL),
        ("POST /v1/jobs/run-1/proposals/3/approve", CONTROL),
        ("DELETE /v1/jobs/run-1/silences/reward", CONTROL),
        ("POST /v1/tokens", ADMIN),
        ("DELETE /v1/tokens/Ab12Cd34", ADMIN),
        ("GET /static/app.js", OPEN),
    ],
)
def test_an_endpoint_asks_for_its_scope(request_line: str, needed: frozenset[Scope]) -> None:
    assert Table().needed(*request_line.split(" ")) == needed


@pytest.mark.parametrize(
    "request_line",
    [
        "GET /nowhere",
        "GET /v1",
        "GET /v1/jobs/",
        "GET /v1//jobs",
        "GET //v1/jobs",
        "GET /v1/jobs//health",
        "GET /v1/jobs/run-1/health/",
        "GET /V1/jobs",
        "get /v1/jobs",
        "TRACE /livez",
        "POST /livez",
        "POST /static/app.js",
        "OPTIONS /v1/jobs",
        "DELETE /v1/jobs/run-1",
        "GET /static",
        "GET /livez/",
        "GET /v1/session/",
    ],
)
def test_what_nobody_knows_is_for_admins(request_line: str) -> None:
    assert Table().needed(*request_line.split(" ")) == ADMIN


def test_no_request_is_for_two_endpoints() -> None:
    for endpoint, scopes in ENDPOINTS.items():
        method, path = endpoint.split(" ")
        others = {name: needed for name, needed in ENDPOINTS.items() if needed != scopes and name.startswith(method)}
        for other in others:
            pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(other))
            assert not re.fullmatch(pattern, endpoint), f"{endpoint} is also {other}"
        assert Table().needed(method, re.sub(r"\{\w+\}", "x1", path)) == scopes
