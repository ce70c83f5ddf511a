"""A plant under the agent, and what passed between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent_runs import Plant

from trimtab.agent.advance import Outcome, advance
from trimtab.agent.config import AgentConfig, with_settings
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Event, EventKind, Mode, OperatorAction, OperatorVerb
from trimtab.hooks.records import StepSummary

CENTRED = {"ratio_reference": "recomputed", "centering": True}


class Session:
    """A plant, an agent, and what passed between them."""

    def __init__(self, plant: Plant | None = None, mode: Mode = Mode.AUTO, **settings: Any) -> None:
        self.plant = plant or Plant(seed=0, noisy_from=0)
        self.config = with_settings(AgentConfig(mode=mode), settings)
        self.state = RunState.initial(self.plant.job, self.config.mode)
        self.events: list[Event] = []

    def run(self, steps: int, *, deaf: bool = False, **changes: Any) -> Session:
        for _ in range(steps):
            self.take(replace(self.plant.advance(), **changes), deaf=deaf)
        return self

    def take(self, record: StepSummary | OperatorAction, *, deaf: bool = False) -> Outcome:
        outcome = advance(self.config, self.state, record)
        self.state = outcome.state
        self.events += outcome.events
        if not deaf:
            self.plant.obey(outcome.command)
        return outcome

    def tell(self, verb: OperatorVerb, **fields: Any) -> Outcome:
        return self.take(OperatorAction(job="run", verb=verb, issuer="ada", reason="because", **fields))

    def of(self, kind: EventKind) -> list[Event]:
        return [event for event in self.events if event.kind is kind]

    def changes(self) -> list[tuple[int, dict[str, Any]]]:
        return [(event.step, event.detail["after"]) for event in self.of(EventKind.CONTROLS_CHANGED)]
