"""The life of a token, over HTTP."""

import json
import logging
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from access_runs import Clock, bearing, issued

from trimtab.api.access.scopes import Scope
from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.storage.audit import Audit, verified
from trimtab.storage.tokens import Tokens

DAY = 86_400


def test_without_tokens_whoever_is_on_the_machine_needs_none(http: httpx.Client) -> None:
    assert http.get("/v1/jobs").status_code == 200
    who = http.get("/v1/session").json()
    assert who == {"name": "local", "scopes": ["read", "ingest", "control", "admin"], "token": None, "csrf": None}
    shown = http.get("/v1/jobs", headers={"Authorization": "Bearer ttb_Ab12Cd34_" + "x" * 43})
    assert shown.status_code == 200


def test_with_the_first_token_everybody_needs_one(http: httpx.Client, url: str) -> None:
    made = http.post("/v1/tokens", json={"name": "root", "scopes": ["admin"]})
    assert made.status_code == 201
    refused = http.get("/v1/jobs")
    assert refused.status_code == 401
    assert refused.json()["errors"][0]["message"].startswith("a token is needed")
    with bearing(url, made.json()["token"]) as root:
        assert root.get("/v1/jobs").status_code == 200
        assert root.get("/v1/session").json()["name"] == "root"


def test_a_token_that_the_command_line_makes_is_taken_at_once(service: Service, admin: httpx.Client, url: str) -> None:
    assert admin.get("/v1/jobs").status_code == 200
    with bearing(url, issued(service, Scope.READ)) as http:
        assert http.get("/v1/jobs").status_code == 200


def test_the_list_tells_everything_but_secrets(admin: httpx.Client, held: dict[Scope, str]) -> None:
    response = admin.get("/v1/tokens")
    listed = response.json()["tokens"]
    assert {(one["name"], *one["scopes"], one["job"], one["standing"]) for one in listed} == {
        ("the read token", "read", None, "valid"),
        ("the ingest token", "ingest", "run", "valid"),
        ("the control token", "control", None, "valid"),
        ("the admin token", "admin", None, "valid"),
    }
    for token in held.values():
        prefix, id, secret = token.split("_")
        assert secret not in response.text
        assert id in {one["id"] for one in listed}
        assert prefix == "ttb"
    assert "digest" not in response.text


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"name": "", "scopes": ["read"]}, "name"),
        ({"name": "x" * 129, "scopes": ["read"]}, "name"),
        ({"name": "x", "scopes": []}, "scopes"),
        ({"name": "x", "scopes": ["root"]}, "scopes.0"),
        ({"name": "x", "scopes": ["ingest"]}, "job"),
        ({"name": "x", "scopes": ["ingest", "read"], "job": "run"}, "scopes"),
        ({"name": "x", "scopes": ["ingest"], "job": "no/job"}, "job"),
        ({"name": "x", "scopes": ["read"], "job": "run"}, "job"),
        ({"name": "x", "scopes": ["read"], "expires_in": 0}, "expires_in"),
        ({"name": "x", "scopes": ["read"], "expires_in": 1e30}, "expires_in"),
        ({"name": "x", "scopes": ["read"], "secret": "mine"}, "secret"),
        ({"name": "\ud800", "scopes": ["read"]}, "name"),
    ],
)
def test_a_token_that_must_not_be_is_refused(
    admin: httpx.Client, service: Service, wanted: dict[str, object], field: str
) -> None:
    before = Tokens(service.database).all()
    response = admin.post("/v1/tokens", content=json.dumps(wanted), headers={"content-type": "application/json"})
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["field"] == field
    assert Tokens(service.database).all() == before


def test_a_revoked_token_lets_nobody_in(admin: httpx.Client, url: str, held: dict[Scope, str]) -> None:
    id = held[Scope.READ].split("_")[1]
    with bearing(url, held[Scope.READ]) as http:
        assert http.get("/v1/jobs").status_code == 200
        revoked = admin.delete(f"/v1/tokens/{id}", params={"reason": "it was in a log"})
        assert revoked.json()["standing"] == "revoked"
        refused = http.get("/v1/jobs")
    assert refused.status_code == 401
    assert "mistyped, revoked or expired" in refused.json()["errors"][0]["message"]
    assert refused.headers["www-authenticate"] == "Bearer"
    assert admin.delete("/v1/tokens/nope").status_code == 404
    assert admin.post(f"/v1/tokens/{id}/rotate", json={}).status_code == 409


def test_the_last_token_that_is_revoked_opens_no_door(service: Service, url: str, http: httpx.Client) -> None:
    root = issued(service, Scope.ADMIN)
    with bearing(url, root) as admin:
        assert admin.delete(f"/v1/tokens/{root.split('_')[1]}").status_code == 200
        assert admin.get("/v1/jobs").status_code == 401
    assert http.get("/v1/jobs").status_code == 401


@pytest.fixture
def turned(service: Service, clock: Clock) -> Iterator[str]:
    """The address of the service, on a clock that the test turns."""
    service.clock = clock
    with running(service) as url:
        yield url


def test_a_token_expires(service: Service, turned: str, clock: Clock) -> None:
    with bearing(turned, issued(service, Scope.READ, expires_in=DAY)) as http:
        clock.now += DAY - 1
        assert http.get("/v1/jobs").status_code == 200
        clock.now += 1
        assert http.get("/v1/jobs").status_code == 401


def test_an_old_secret_is_taken_as_long_as_it_overlaps(service: Service, turned: str, clock: Clock) -> None:
    old = issued(service, Scope.READ)
    with bearing(turned, issued(service, Scope.ADMIN)) as admin:
        rotated = admin.post(f"/v1/tokens/{old.split('_')[1]}/rotate", json={"overlap": DAY}).json()
        assert rotated["about"]["old_secret_until"] == clock.now + DAY
        new = rotated["token"]
        assert new.split("_")[1] == old.split("_")[1]
        with bearing(turned, old) as before, bearing(turned, new) as after:
            assert [http.get("/v1/jobs").status_code for http in (before, after)] == [200, 200]
            clock.now += DAY
            assert [http.get("/v1/jobs").status_code for http in (before, after)] == [401, 200]
        assert admin.get("/v1/tokens").json()["tokens"][0]["old_secret_until"] is None


def test_a_secret_that_leaked_is_replaced_at_once(service: Service, turned: str) -> None:
    leaked = issued(service, Scope.READ)
    with bearing(turned, issued(service, Scope.ADMIN)) as admin:
        admin.post(f"/v1/tokens/{leaked.split('_')[1]}/rotate", json={"overlap": 0})
        with bearing(turned, leaked) as http:
            assert http.get("/v1/jobs").status_code == 401


def test_the_last_use_is_written_down_coarsely(service: Service, turned: str, clock: Clock) -> None:
    token = issued(service, Scope.READ)
    stored = Tokens(service.database)
    (fresh,) = stored.all()
    assert fresh.last_used_at is None
    used = []
    with bearing(turned, token) as http:
        for _ in range(3):
            assert http.get("/v1/jobs").status_code == 200
            with bearing(turned, None) as stranger:  # has the tokens read again
                stranger.get("/v1/jobs", headers={"Authorization": f"Bearer ttb_Ab12Cd34_{'x' * 43}"})
            used.append(stored.all()[0].last_used_at)
            clock.now += 200
    assert used == [1.8e9, 1.8e9, 1.8e9 + 400]
    assert stored.all()[0] == replace(fresh, last_used_at=1.8e9 + 400)


def test_what_is_done_with_tokens_is_on_record_by_whom(service: Service, admin: httpx.Client) -> None:
    made = admin.post("/v1/tokens", json={"name": "ada", "scopes": ["control"]}).json()["about"]
    admin.post(f"/v1/tokens/{made['id']}/rotate", json={"overlap": 60, "reason": "as every month"})
    admin.delete(f"/v1/tokens/{made['id']}", params={"reason": "ada has left"})
    *_, created, rotated, revoked = Audit(service.database).links()
    assert [link.action for link in (created, rotated, revoked)] == ["create_token", "rotate_token", "revoke_token"]
    assert {(link.actor, link.ip) for link in (created, rotated, revoked)} == {("the admin token", "127.0.0.1")}
    assert (rotated.reason, revoked.reason) == ("as every month", "ada has left")
    assert f'"id":"{made["id"]}"' in created.detail
    assert verified(Audit(service.database).links()).number == revoked.number


def test_no_secret_is_ever_logged_or_stored(
    service: Service, url: str, held: dict[Scope, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = held[Scope.ADMIN].split("_")[2]
    with bearing(url, held[Scope.ADMIN]) as admin:
        admin.get("/v1/tokens")
        admin.post("/v1/session", json={"token": held[Scope.ADMIN]})
        for wrong in (
            {"token": held[Scope.ADMIN] + "x" * 200},
            {"token": [held[Scope.ADMIN]]},
            {"x": held[Scope.ADMIN]},
        ):
            assert secret not in admin.post("/v1/session", json=wrong).text
        admin.get(f"/v1/jobs/{held[Scope.ADMIN]}")
    with bearing(url, held[Scope.ADMIN][:-1] + "~") as http:
        assert http.get("/v1/jobs").status_code == 401
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]  # the test's own
    assert any(record.name == "trimtab.api" for record in ours)
    assert secret[:-1] not in "".join(f"{record.getMessage()} {record.exc_text}" for record in ours)
    with service.database.read() as connection:
        dumped = "".join(
            str(row)
            for table in ("tokens", "sessions", "audit", "jobs", "events", "ledger")
            for row in connection.exec_driver_sql(f"SELECT * FROM {table}")
        )
    assert secret[:-1] not in dumped


def test_with_the_database_away_nobody_is_let_in_and_the_trainer_is_told_to_wait(
    service: Service, url: str, held: dict[Scope, str]
) -> None:
    with service.database.write() as connection:
        connection.exec_driver_sql("ALTER TABLE tokens RENAME TO gone")
    with bearing(url, held[Scope.INGEST]) as http:
        for path in ("/livez", "/", "/openapi.json"):
            assert http.get(path).status_code == 200
        assert http.get("/v1/session").json()["name"] is None
        response = http.post("/v1/summaries", json={"job": "run", "attempt": 1, "step": 0})
        assert response.status_code == 503
        assert "the database does not answer" in response.json()["errors"][0]["message"]
        with service.database.write() as connection:
            connection.exec_driver_sql("ALTER TABLE gone RENAME TO tokens")
        response = http.post("/v1/summaries", json={"job": "run", "attempt": 1, "step": 0})
        assert response.status_code == 200


def test_what_no_database_takes_is_refused(admin: httpx.Client) -> None:
    for path in ("/v1/jobs/a%00b", "/v1/jobs?query=%00", "/v1/audit?job=a%00", "/v1/tokens/%00/rotate"):
        response = admin.get(path)
        assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "url")
    response = admin.post("/v1/tokens", json={"name": "a\0b", "scopes": ["read"]})
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "name")
