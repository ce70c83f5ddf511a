"""Records of public reports, restated, and what the agent makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from agent_runs import step_summary

from trimtab.agent.advance import advance
from trimtab.agent.config import AgentConfig
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Event, EventKind, Incident, Mode, OperatorAction
from trimtab.hooks.records import NonFinite, StepSummary

AUTO = AgentConfig(mode=Mode.AUTO)
_RNG = np.random.default_rng(11)
QUIET = _RNG.normal(0, 0.01, 1000), _RNG.normal(0, 0.01, 1000)
NO_SAMPLER = {"rollout_logprobs": NonFinite(nan=1000)}


def told(records: Sequence[StepSummary | OperatorAction], config: AgentConfig = AUTO) -> tuple[RunState, list[Event]]:
    state, events = RunState.initial("run", config.mode), []
    for record in records:
        outcome = advance(config, state, record)
        state, events = outcome.state, [*events, *outcome.events]
    return state, events


def of(events: list[Event], kind: EventKind) -> list[Event]:
    return [event for event in events if event.kind is kind]


def fired(events: list[Event], kind: EventKind = EventKind.INCIDENT_FIRING) -> list[tuple[int, str]]:
    """Step and detector of everything that people are told."""
    return [(event.step, event.detail["detector"]) for event in of(events, kind)]


def acted(events: list[Event]) -> bool:
    return bool(of(events, EventKind.PROPOSED) + of(events, EventKind.CONTROLS_CHANGED))


def incident(state: RunState, detector: str) -> Incident:
    return state.incidents[f"run/{detector}"]


def scalars(**changes: float) -> dict[str, float]:
    return {"reward_mean": 0.6, "loss": 0.01, "grad_norm": 0.2, "garbage_fraction": 0.0} | changes


def normal(step: int, **fields: object) -> StepSummary:
    summary = step_summary(step, update=QUIET, mismatch=QUIET, entropy=0.4, scalars=scalars())
    return replace(summary, **fields)  # type: ignore[arg-type]


def with_mismatch(step: int, log_ratios: tuple[np.ndarray, np.ndarray], **fields: object) -> StepSummary:
    """A normal step but for the mismatch, which the clipped ratio contains."""
    return normal(step, sketches=step_summary(step, update=log_ratios, mismatch=log_ratios).sketches, **fields)
