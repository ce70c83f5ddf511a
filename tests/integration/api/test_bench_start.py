"""What `trimtab bench start` measures, and the memory that an idle server may hold."""

import json

import pytest
from api_runs import trimtab

IDLE_MB = 150


@pytest.mark.slow
def test_an_idle_server_is_small() -> None:
    starts = json.loads(trimtab("bench", "start", "--times", "2", "--json").stdout)
    assert [one["database"] for one in starts] == ["new", "there already"]
    for one in starts:
        assert one["processor_seconds"]["median"] > 0
        assert 0 < one["seconds"]["p10"] <= one["seconds"]["median"] <= one["seconds"]["p90"]
        assert 20 < one["memory_mb"]["median"] <= IDLE_MB
