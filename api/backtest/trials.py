"""Judge drawn runs: the work of one process, whose outcome is a list of `Trial`.

The fold is a function of state and summary, and runs of one seed are the same until something happens to them. So the
run of a set-up and a seed to which nothing happens is folded once, and at each onset the others go on from the state
that it has reached: what a failing one costs is the steps until it is seen, and no healthy step is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trimtab.agent.advance import Outcome, advance
from trimtab.agent.checks import require
from trimtab.agent.config import AgentConfig
from trimtab.agent.run_state import RunState
from trimtab.api.backtest.conditions import Size
from trimtab.api.backtest.faults import nothing
from trimtab.api.backtest.run import summary_at
from trimtab.api.backtest.scenarios import SCENARIOS, Label, Scenario
from trimtab.api.backtest.watching import Alert, fired

Chance = frozenset[tuple[int, str]]
"""Step and kind of the alerts in the run to which nothing happens."""

AFTERWARDS = 10
"""Steps after the first alert on a fault of one step, whose alerts are counted too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is drawn, and how long each run is watched."""

    seeds: int = 10
    steps: int = 1000
    """Of a run that does not fail; one to which nothing happens goes on for as long as any that fails."""
    onsets: tuple[int, ...] = (200, 500, 2000)
    """Steps at which failing runs begin to; what is harmless begins at the first."""
    horizon: int = 300
    """Steps after the onset within which a failing run has to be seen."""
    size: Size = field(default_factory=Size)

    def __post_init__(self) -> None:
        for name in ("seeds", "horizon"):
            require(getattr(self, name) >= 1, f"--{name}", getattr(self, name), "at least 1")
        distinct = bool(self.onsets) and list(self.onsets) == sorted(set(self.onsets)) and self.onsets[0] >= 0
        require(distinct, "--onsets", self.onsets, "steps from 0, each above the one before")
        require(self.steps > self.onsets[0], "--steps", self.steps, f"above the first onset, {self.onsets[0]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run that was judged, from its onset on."""

    scenario: str
    seed: int
    onset: int
    steps: int
    """Steps that were judged."""
    alerts: tuple[Alert, ...]

    @property
    def delay(self) -> int | None:
        """Steps from the onset to the first alert; 0 is the step of the onset itself. None where there was none."""
        return self.alerts[0].at - self.onset if self.alerts else None


def bases(scenarios: Sequence[Scenario]) -> list[str]:
    """Names of those to which nothing happens that the given ones begin as."""
    setups = [one.setup for one in scenarios]
    return [one.name for one in SCENARIOS.values() if one.fault is nothing and one.setup in setups]


def trials(base: str, seed: int, chosen: Sequence[str], plan: Plan, config: AgentConfig) -> Iterator[Trial]:
    """Every chosen run of one seed that begins as the scenario `base`, to which nothing happens, and that itself."""
    plain = SCENARIOS[base]
    others = [SCENARIOS[name] for name in chosen if SCENARIOS[name].fault is not nothing]
    others = [one for one in others if one.setup == plain.setup]
    failing = any(one.label is Label.FAILING for one in others)
    steps = max(plan.steps, plan.onsets[-1] + plan.horizon) if failing else plan.steps
    before, states, alerts = RunState.initial("drawn"), [], []
    for step, outcome in enumerate(_folded(plain, seed, 0, before, range(steps), plan, config)):
        if step in plan.onsets:
            states.append(before)
        before = outcome.state
        alerts += fired(outcome)
    yield Trial(scenario=base, seed=seed, onset=0, steps=steps, alerts=tuple(alerts))
    by_chance = frozenset((alert.at, alert.what) for alert in alerts)
    for one in others:
        if one.label is Label.FAILING:
            for onset, at_onset in zip(plan.onsets, states, strict=True):
                yield _until_seen(one, seed, onset, at_onset, plan, config, by_chance)
        else:
            yield _to_the_end(one, seed, plan.onsets[0], states[0], plan, config)


def _folded(
    scenario: Scenario, seed: int, onset: int, state: RunState, steps: range, plan: Plan, config: AgentConfig
) -> Iterator[Outcome]:
    """What each of these steps leads to, from `state` on."""
    for step in steps:
        summary = summary_at(scenario.setup, plan.size, seed, step, fault=scenario.fault, onset=onset)
        outcome = advance(config, state, summary)
        state = outcome.state
        yield outcome


def _until_seen(
    scenario: Scenario, seed: int, onset: int, state: RunState, plan: Plan, config: AgentConfig, by_chance: Chance
) -> Trial:
    """A failing run from its onset on, until something fires that would not have fired at that step anyway."""
    alerts: list[Alert] = []
    judged, end = 0, plan.horizon
    for outcome in _folded(scenario, seed, onset, state, range(onset, onset + plan.horizon), plan, config):
        now = [alert for alert in fired(outcome) if (alert.at, alert.what) not in by_chance]
        judged += 1
        if now and not alerts:
            end = min(end, judged + AFTERWARDS * scenario.once)
        alerts += now
        if judged >= end:
            break
    return Trial(scenario=scenario.name, seed=seed, onset=onset, steps=judged, alerts=tuple(alerts))


def _to_the_end(scenario: Scenario, seed: int, onset: int, state: RunState, plan: Plan, config: AgentConfig) -> Trial:
    """Any other run from its onset on."""
    steps = range(onset, plan.steps)
    alerts = [
        alert for outcome in _folded(scenario, seed, onset, state, steps, plan, config) for alert in fired(outcome)
    ]
    return Trial(scenario=scenario.name, seed=seed, onset=onset, steps=len(steps), alerts=tuple(alerts))
