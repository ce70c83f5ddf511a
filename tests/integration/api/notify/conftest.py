"""An office to work in, on both databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from alerting import Office


@pytest.fixture
def office(database_url: str) -> Iterator[Office]:
    """A database with nobody who is told."""
    made = Office(database_url)
    yield made
    made.close()
