"""Databases: every test of storage runs on both kinds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres import NoPostgresError, PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL, one for each process of tests; a test that needs it is skipped without one, but not in CI."""
    try:
        server = PostgresServer()
    except NoPostgresError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a new, empty database: of a file in `tmp_path`, then on a PostgreSQL server."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'agent.db'}"
        return
    with request.getfixturevalue("postgres").database() as url:
        yield url
