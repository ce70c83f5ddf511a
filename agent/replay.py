"""A recorded run, judged again: the same fold over the same records, under any settings."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.agent.advance import advance
from trimtab.agent.config import AgentConfig
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Event, OperatorAction
from trimtab.hooks.records import StepSummary


def replay(config: AgentConfig, records: Iterable[StepSummary | OperatorAction]) -> tuple[RunState, tuple[Event, ...]]:
    """The last state and every event of one job's records, in ledger order.

    Raises:
        ValueError: there is no record, or they are of several jobs.
    """
    state: RunState | None = None
    events: list[Event] = []
    for record in records:
        if state is None:
            state = RunState.initial(record.job, config.mode)
        outcome = advance(config, state, record)
        state = outcome.state
        events += outcome.events
    if state is None:
        raise ValueError("records: none to replay")
    return state, tuple(events)
