"""What `trimtab bench attach` measures."""

import importlib.util
import json

import pytest
from api_runs import trimtab


@pytest.mark.slow
def test_the_steps_of_a_loop_that_is_attached_to_are_measured() -> None:
    delays = json.loads(trimtab("bench", "attach", "--times", "2", "--json").stdout)
    ways = ["armed"] + ["injected"] * (importlib.util.find_spec("hypno") is not None)
    assert [one["way"] for one in delays] == ways
    for one in delays:
        assert one["step_ms"] > 0
        assert one["answer_ms"]["median"] > 0
        assert one["worst_ms"] >= one["delay_ms"]["median"]
        assert (one["stopped_ms"] is None) == (one["way"] == "armed")
