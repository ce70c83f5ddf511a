"""A recorded run, judged again: the same fold over the same records, under any settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trimtab.agent.advance import Outcome, advance
from trimtab.agent.config import AgentConfig
from trimtab.agent.operator import OperatorError
from trimtab.agent.run_state import RunState
from trimtab.agent.state import OperatorAction
from trimtab.hooks.controls import ControlError
from trimtab.hooks.records import StepSummary


def replay(config: AgentConfig, state: RunState, records: Iterable[StepSummary | OperatorAction]) -> Iterator[Outcome]:
    """What each of a job's records leads to, in ledger order, from a state on.

    A person's decision that does not fit what is made of its past now (another version of the program, or other
    settings) is passed over: live it would have been refused, and have changed nothing.
    """
    for record in records:
        try:
            outcome = advance(config, state, record)
        except (ControlError, OperatorError):
            outcome = Outcome(state=state)
        state = outcome.state
        yield outcome
