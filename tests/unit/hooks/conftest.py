"""An emitter of rank 3 that keeps its summaries in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hook_runs import CAN

from trimtab.hooks.emitter import Emitter
from trimtab.hooks.transport.memory import MemoryTransport


@pytest.fixture
def transport() -> MemoryTransport:
    return MemoryTransport()


@pytest.fixture
def emitter(transport: MemoryTransport) -> Iterator[Emitter]:
    with Emitter(transport, job="run", attempt=1, capabilities=CAN, rank=3) as made:
        yield made
