"""A rig for each adapter, with nothing of it in the home directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import LoopbackAgent
from rigs import RIGS, Rig


@pytest.fixture(params=list(RIGS))
def name(request: pytest.FixtureRequest) -> str:
    """Of the adapter."""
    return str(request.param)


@pytest.fixture
def rig(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """The trainer of that adapter, which is not attached yet."""
    monkeypatch.setenv("HOME", str(tmp_path))  # where summaries are spooled
    made = RIGS[name]()
    yield made
    made.close()


@pytest.fixture
def agent() -> Iterator[LoopbackAgent]:
    running = LoopbackAgent()
    yield running
    running.release.set()
    running.stop()
