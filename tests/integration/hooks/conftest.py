"""An agent that is only a loopback HTTP server with a script of answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from loopback import LoopbackAgent


@pytest.fixture
def agent() -> Iterator[LoopbackAgent]:
    running = LoopbackAgent()
    yield running
    running.release.set()
    running.stop()


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Wait until something in another thread holds; fail where it never does."""

    def wait(holds: Callable[[], bool]) -> None:
        give_up = time.monotonic() + 20
        while not holds():
            assert time.monotonic() < give_up, "it never came to hold"
            time.sleep(0.005)

    return wait
