"""Tiny models of real families, one folder each for the session; a browser, and runs to look at with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browsing import Browser, chromium
from dashboard_runs import three_runs
from tiny_models import saved_model

from trimtab.api.service import Service


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny model by its family, written once a session."""
    root, made = tmp_path_factory.mktemp("models"), {}

    def written(family: str) -> Path:
        if family not in made:
            made[family] = saved_model(family, root / family)
        return made[family]

    return written


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser that is installed; each test has a session of its own in it.

    It ends with the file: while it is there its event loop runs in this thread, where other tests begin their own.
    """
    with chromium() as running:
        yield running


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """One run that the agent saved, one that is lost, one that is healthy."""
    service = three_runs(tmp_path / "agent.db")
    yield service
    service.close()
