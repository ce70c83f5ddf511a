"""What the agent says of records made for one question."""

from __future__ import annotations

from typing import Any

import numpy as np
from agent_runs import step_summary
from pydantic import ConfigDict, TypeAdapter

from trimtab.agent.advance import advance
from trimtab.agent.config import AgentConfig
from trimtab.agent.run_state import RunState
from trimtab.agent.state import State, Verdict
from trimtab.hooks.records import StepSummary

CONFIG = AgentConfig()
JSON: TypeAdapter[list[RunState]] = TypeAdapter(list[RunState], config=ConfigDict(ser_json_inf_nan="strings"))


def final(records: list[StepSummary], config: AgentConfig = CONFIG) -> RunState:
    state = RunState.initial(records[0].job, config.mode)
    for record in records:
        state = advance(config, state, record).state
    return state


def states(detector: str, records: list[StepSummary]) -> list[State]:
    """The detector's state after each record."""
    state, seen = RunState.initial("run"), []
    for record in records:
        state = advance(CONFIG, state, record).state
        seen.append(state.verdicts[detector].state)
    return seen


def text(state: RunState) -> bytes:
    """A state as it is stored."""
    return JSON.dump_json([state])


def reloaded(state: RunState) -> RunState:
    return JSON.validate_json(text(state))[0]


def verdict(detector: str, records: list[StepSummary], config: AgentConfig = CONFIG) -> Verdict:
    return final(records, config).verdicts[detector]


def scalars_of(n: int, **series: Any) -> list[StepSummary]:
    """n steps with scalars, each given as a constant or a sequence; `entropy` is a tensor's mean."""
    at = [{k: float(v[i]) if np.ndim(v) else float(v) for k, v in series.items()} for i in range(n)]
    return [step_summary(i, entropy=values.pop("entropy", None), scalars=values) for i, values in enumerate(at)]
