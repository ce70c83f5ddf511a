"""A real service that asks for tokens."""

from collections.abc import Iterator

import httpx
import pytest
from access_runs import Clock, bearing, issued

from trimtab.api.access.scopes import Scope
from trimtab.api.service import Service


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def held(service: Service) -> dict[Scope, str]:
    """A token of each scope; the trainer's is for the job `run`."""
    return {scope: issued(service, scope) for scope in Scope}


@pytest.fixture
def admin(url: str, held: dict[Scope, str]) -> Iterator[httpx.Client]:
    with bearing(url, held[Scope.ADMIN]) as http:
        yield http
