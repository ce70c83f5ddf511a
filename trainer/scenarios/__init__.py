"""The demo's scenarios: one file each, one line in `SCENARIOS`."""

from __future__ import annotations

from trimtab.trainer.scenarios import cliff, switch
from trimtab.trainer.scenarios.scenario import Scenario

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in (cliff.SCENARIO, switch.SCENARIO)}

__all__ = ["SCENARIOS", "Scenario"]
