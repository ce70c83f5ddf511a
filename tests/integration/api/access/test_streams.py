"""A live stream lasts no longer than what it was asked for with."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from access_runs import bearing, issued, issuing

from trimtab.api.access.scopes import Scope
from trimtab.api.service import Service
from trimtab.storage.values import Origin


@contextmanager
def watching(http: httpx.Client) -> Iterator[Iterator[str]]:
    """The lines of a stream behind those that say that it is ready."""
    with http.stream("GET", "/v1/stream") as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        while next(lines) != "":
            pass
        yield lines


def ended(lines: Iterator[str]) -> bool:
    """Whether it ends before it says anything; 15 seconds without news would bring a comment."""
    return next(lines, None) is None


def test_it_ends_once_its_token_is_revoked(url: str, admin: httpx.Client, service: Service) -> None:
    token = issued(service, Scope.READ)
    with bearing(url, token) as http, watching(http) as lines:
        assert admin.delete(f"/v1/tokens/{token.split('_')[1]}", params={"reason": "gone"}).status_code == 200
        assert ended(lines)


def test_it_ends_once_the_browser_is_logged_out(url: str, service: Service) -> None:
    token = issued(service, Scope.READ)
    with bearing(url, None) as browser, bearing(url, None) as elsewhere:
        csrf = browser.post("/v1/session", json={"token": token}).json()["csrf"]
        elsewhere.cookies = browser.cookies
        with watching(browser) as lines:
            assert elsewhere.delete("/v1/session", headers={"X-CSRF-Token": csrf}).is_success
            assert ended(lines)


def test_it_ends_where_another_process_has_made_the_first_token(http: httpx.Client, service: Service) -> None:
    with watching(http) as lines:
        issuing(service).create("root", [Scope.ADMIN], job=None, expires_in=None, origin=Origin())
        assert ended(lines)
