"""A real service: uvicorn on a loopback port, SQLite in a file."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from trimtab.api.client import Client
from trimtab.api.server import running
from trimtab.api.service import Service


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def service(db: Path) -> Iterator[Service]:
    service = Service.open(db)
    yield service
    service.close()


@pytest.fixture
def url(service: Service) -> Iterator[str]:
    with running(service) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, trust_env=False, timeout=10) as http:
        yield http
