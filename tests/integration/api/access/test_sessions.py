"""A browser's session: its cookie, its CSRF token, and other sites' pages."""

import asyncio
from collections.abc import Iterator
from http.cookies import SimpleCookie

import httpx
import pytest
from access_runs import Clock, bearing, issued

from trimtab.api.access.doorman import AccessSettings
from trimtab.api.access.scopes import Scope
from trimtab.api.access.sessions import COOKIE, LIFETIME_S
from trimtab.api.app import create_app
from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.api.settings import Settings
from trimtab.storage.audit import Audit
from trimtab.storage.tokens import Tokens

KILL = {"reason": "enough"}


@pytest.fixture
def site(service: Service, clock: Clock) -> Iterator[str]:
    """A service that may be called trimtab.example, on a clock that the test turns."""
    service.clock = clock
    service.register("run", config=None, mode=None, issuer="test", reason="test")
    access = AccessSettings(allowed_hosts=frozenset({"trimtab.example"}))
    with running(service, settings=Settings(access=access)) as url:
        yield url


@pytest.fixture
def browser(site: str) -> Iterator[httpx.Client]:
    with bearing(site, None) as http:
        yield http


def logged_in(browser: httpx.Client, token: str) -> str:
    """Log in; the CSRF token."""
    response = browser.post("/v1/session", json={"token": token})
    assert response.status_code == 200, response.text
    csrf: str = response.json()["csrf"]
    return csrf


def test_a_browser_is_known_by_its_cookie_after_it_showed_a_token(service: Service, browser: httpx.Client) -> None:
    token = issued(service, Scope.CONTROL)
    assert browser.get("/v1/session").json() == {"name": None, "scopes": [], "token": None, "csrf": None}
    assert browser.get("/v1/jobs").status_code == 401
    csrf = logged_in(browser, token)
    assert browser.get("/v1/jobs").status_code == 200
    assert browser.get("/v1/session").json() == {
        "name": "the control token",
        "scopes": ["read", "control"],
        "token": token.split("_")[1],
        "csrf": csrf,
    }
    assert browser.get("/v1/tokens").status_code == 403


def test_the_cookie_is_for_this_site_and_no_script(service: Service, browser: httpx.Client) -> None:
    response = browser.post("/v1/session", json={"token": issued(service, Scope.READ)})
    cookie = SimpleCookie(response.headers["set-cookie"])[COOKIE]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["secure"]) == (True, "strict", "/", "")
    assert cookie["max-age"] == str(12 * 3600)
    assert cookie["domain"] == ""
    assert len(cookie.value) == 43
    assert cookie.value not in response.text


def test_by_https_the_cookie_is_for_https_alone(service: Service) -> None:
    app = create_app(service)
    token = issued(service, Scope.READ)

    async def log_in() -> str:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="https://localhost") as http:
            return (await http.post("/v1/session", json={"token": token})).headers["set-cookie"]

    assert "; Secure" in asyncio.run(log_in())


def test_what_changes_something_needs_the_csrf_token(service: Service, browser: httpx.Client) -> None:
    csrf = logged_in(browser, issued(service, Scope.CONTROL))
    for headers in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": csrf[:-1] + "~"}, {"X-CSRF-Token": "ü"}):
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        refused = browser.post("/v1/jobs/run/kill", json=KILL, headers=encoded)
        assert refused.status_code == 403
        assert refused.json()["errors"][0]["field"] == "x-csrf-token"
    assert browser.delete("/v1/session").status_code == 403
    done = browser.post("/v1/jobs/run/kill", json=KILL, headers={"X-CSRF-Token": csrf})
    assert done.status_code == 200
    assert [(link.action, link.actor) for link in Audit(service.database).links()][-1] == ("kill", "the control token")


def test_one_sessions_csrf_token_is_not_anothers(service: Service, browser: httpx.Client, site: str) -> None:
    token = issued(service, Scope.CONTROL)
    logged_in(browser, token)
    with bearing(site, None) as other:
        csrf = logged_in(other, token)
    assert browser.post("/v1/jobs/run/kill", json=KILL, headers={"X-CSRF-Token": csrf}).status_code == 403


def test_a_session_ends_when_its_browser_logs_out_wherever_the_cookie_was_copied_to(
    service: Service, browser: httpx.Client, site: str
) -> None:
    csrf = logged_in(browser, issued(service, Scope.READ))
    copied = {"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
    with bearing(site, None) as thief:
        assert thief.get("/v1/jobs", headers=copied).status_code == 200
        out = browser.delete("/v1/session", headers={"X-CSRF-Token": csrf})
        assert out.status_code == 204
        assert 'trimtab_session=""' in out.headers["set-cookie"]
        assert thief.get("/v1/jobs", headers=copied).status_code == 401
    assert browser.get("/v1/session").json()["name"] is None
    assert [link.action for link in Audit(service.database).links()][-2:] == ["log_in", "log_out"]


def test_a_session_expires(service: Service, browser: httpx.Client, clock: Clock) -> None:
    logged_in(browser, issued(service, Scope.READ))
    clock.now += LIFETIME_S - 1
    assert browser.get("/v1/jobs").status_code == 200
    clock.now += 1
    assert browser.get("/v1/jobs").status_code == 401


def test_a_session_ends_with_its_token(service: Service, browser: httpx.Client, site: str, clock: Clock) -> None:
    token = issued(service, Scope.READ, expires_in=60)
    logged_in(browser, token)
    clock.now += 60
    assert browser.get("/v1/jobs").status_code == 401
    other = issued(service, Scope.READ)
    browser.cookies.clear()
    logged_in(browser, other)
    with bearing(site, issued(service, Scope.ADMIN)) as admin:
        assert browser.get("/v1/jobs").status_code == 200
        admin.delete(f"/v1/tokens/{other.split('_')[1]}")
    assert browser.get("/v1/jobs").status_code == 401
    assert Tokens(service.database).sessions(clock.now)[1:] == []


def test_a_session_ends_with_the_secret_that_opened_it(
    service: Service, browser: httpx.Client, site: str, clock: Clock
) -> None:
    old = issued(service, Scope.CONTROL)
    with (
        bearing(site, None) as late,
        bearing(site, None) as fresh,
        bearing(site, issued(service, Scope.ADMIN)) as admin,
    ):
        logged_in(browser, old)
        rotated = admin.post(f"/v1/tokens/{old.split('_')[1]}/rotate", json={"overlap": 60, "reason": "leaked"})
        logged_in(late, old)
        logged_in(fresh, rotated.json()["token"])
        clock.now += 59
        assert [one.get("/v1/jobs").status_code for one in (browser, late, fresh)] == [200, 200, 200]
        clock.now += 1
        assert [one.get("/v1/jobs").status_code for one in (browser, late, fresh)] == [401, 401, 200]


def test_a_wrong_token_logs_nobody_in_and_is_on_record(service: Service, browser: httpx.Client) -> None:
    token = issued(service, Scope.READ)
    wrong = token[:-3] + "abc"
    refused = browser.post("/v1/session", json={"token": wrong})
    assert refused.status_code == 401
    assert "set-cookie" not in refused.headers
    last = list(Audit(service.database).links())[-1]
    assert (last.action, last.actor, last.ip) == ("token_refused", "stranger", "127.0.0.1")
    assert last.detail == f'{{"token":"{token.split("_")[1]}"}}'


def test_a_trainers_token_opens_no_page(service: Service, browser: httpx.Client) -> None:
    refused = browser.post("/v1/session", json={"token": issued(service, Scope.INGEST)})
    assert refused.status_code == 403
    assert "may not read" in refused.json()["errors"][0]["message"]


@pytest.mark.parametrize("host", ["evil.example", "trimtab.example.evil.example", "192.0.2.1", ""])
def test_under_another_name_a_cookie_is_worth_nothing(service: Service, browser: httpx.Client, host: str) -> None:
    """DNS rebinding: the page's own name leads here, and its browser would send what is kept for that name."""
    logged_in(browser, issued(service, Scope.READ))
    for path in ("/v1/jobs", "/", "/v1/session", "/static/app.js"):
        refused = browser.get(path, headers={"Host": host})
        assert refused.status_code == 403
        assert refused.json()["errors"][0]["field"] == "Host"
        assert "--allowed-host" in refused.json()["errors"][0]["message"]


def test_an_allowed_name_is_served_on_any_port(service: Service, browser: httpx.Client) -> None:
    logged_in(browser, issued(service, Scope.READ))
    for host in ("trimtab.example", "TRIMTAB.example:8443"):
        assert browser.get("/v1/jobs", headers={"Host": host}).status_code == 200


def test_a_page_of_another_origin_changes_nothing(service: Service, browser: httpx.Client, site: str) -> None:
    csrf = logged_in(browser, issued(service, Scope.CONTROL))
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://["):
        headers = {"X-CSRF-Token": csrf, "Origin": origin}
        refused = browser.post("/v1/jobs/run/kill", json=KILL, headers=headers)
        assert refused.status_code == 403
        assert refused.json()["errors"][0]["field"] == "Origin"
        assert browser.post("/v1/session", json={"token": "x"}, headers=headers).status_code == 403
    same = {"X-CSRF-Token": csrf, "Origin": site}
    assert browser.post("/v1/jobs/run/kill", json=KILL, headers=same).status_code == 200


def test_a_bearer_token_is_taken_under_any_name_and_from_any_page(service: Service, site: str) -> None:
    with bearing(site, issued(service, Scope.CONTROL)) as http:
        headers = {"Host": "10.1.2.3:8787", "Origin": "https://tools.example"}
        assert http.post("/v1/jobs/run/kill", json=KILL, headers=headers).status_code == 200
    with bearing(site, "ttb_Ab12Cd34_" + "x" * 43) as http:
        assert http.get("/v1/jobs", headers={"Host": "evil.example"}).status_code == 401


def test_without_tokens_a_bearer_header_opens_no_door_to_a_rebound_page(browser: httpx.Client) -> None:
    headers = {"Host": "evil.example", "Authorization": "Bearer ttb_Ab12Cd34_" + "x" * 43}
    refused = browser.get("/v1/jobs", headers=headers)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (403, "Host")


def test_probes_are_answered_under_any_name_and_metrics_with_a_token(service: Service, browser: httpx.Client) -> None:
    token = issued(service, Scope.READ)
    for path in ("/livez", "/readyz"):
        assert browser.get(path, headers={"Host": "10.1.2.3:8787"}).status_code == 200
    assert browser.get("/metrics").status_code == 401
    scraped = browser.get("/metrics", headers={"Authorization": f"Bearer {token}", "Host": "10.1.2.3:8787"})
    assert scraped.status_code == 200
