"""What a scenario is: the same run several times, which differ in format and in what the agent may do."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.trainer.config import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioRun:
    """One run of a scenario."""

    name: str
    title: str
    """What the table calls it."""
    config: RunConfig
    mode: str = "observe"
    """Mode of the agent for this job."""
    remedies: tuple[str, ...] | None = None
    """Remedies that the agent may use; None allows all."""
    cause_step: int | None = None
    """Step at which the cause is there; None where nothing is wrong, and any alert is a false one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Runs to be seen side by side."""

    name: str
    title: str
    note: str
    """What is done to the runs, in one line: declared with every result."""
    runs: tuple[ScenarioRun, ...]
    quick: tuple[str, ...]
    """Names of the runs that `--quick` keeps; empty leaves the scenario out."""
