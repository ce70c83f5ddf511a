"""Which runs a demo is made of, and where each puts its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trimtab.trainer.config import RunConfig
from trimtab.trainer.scenarios import SCENARIOS
from trimtab.trainer.scenarios.scenario import Scenario, ScenarioRun


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One run of one scenario with one seed."""

    scenario: str
    run: ScenarioRun
    seed: int
    folder: Path

    @property
    def job(self) -> str:
        """Its name at the agent."""
        return f"demo-{self.scenario}-{self.run.name}-s{self.seed}"

    @property
    def config(self) -> RunConfig:
        """Its configuration, the seed put in."""
        return self.run.config.model_copy(update={"seed": self.seed})

    @property
    def policy(self) -> dict[str, object]:
        """Settings of the agent for this job that differ from its defaults."""
        return {} if self.run.remedies is None else {"policy": {"allow": list(self.run.remedies)}}


def plan(out: Path, *, seeds: int, quick: bool) -> list[PlannedRun]:
    """Every run, the first seed's first."""
    return [
        PlannedRun(scenario=scenario.name, run=run, seed=seed, folder=out / scenario.name / f"{run.name}-s{seed}")
        for seed in range(seeds)
        for scenario in SCENARIOS.values()
        for run in _kept(scenario, quick)
    ]


def _kept(scenario: Scenario, quick: bool) -> tuple[ScenarioRun, ...]:
    return tuple(run for run in scenario.runs if run.name in scenario.quick) if quick else scenario.runs
