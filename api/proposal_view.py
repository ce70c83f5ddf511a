"""Proposals as they are decided on."""

from __future__ import annotations

from pydantic import Field

from trimtab.agent.run_state import RunState
from trimtab.agent.state import Direction, Proposal
from trimtab.api.views import View
from trimtab.hooks.controls import ControlValue


class ProposalView(View):
    """A change that waits for a person, or stands as advice."""

    id: int
    direction: Direction
    remedy: str
    rung: int = Field(description="Place on the ladder, from 0.")
    incident: str = Field(description="Fingerprint of the incident that asked for it.")
    step: int = Field(description="When it was made.")
    changes: dict[str, ControlValue | None] = Field(
        description="What it sets, and null for what it lifts: give it back to approve or reject just this."
    )
    overrides: dict[str, ControlValue] = Field(description="All that is overridden after it.")
    base_generation: int = Field(description="Of the controls that it changes; at another one it is void.")
    steps_left: int = Field(description="Steps after which it is withdrawn for want of an answer.")
    reason: str


def proposal_view(state: RunState, proposal: Proposal) -> ProposalView:
    """A proposal that stands in this state."""
    return ProposalView(
        id=proposal.id,
        direction=proposal.direction,
        remedy=proposal.remedy,
        rung=proposal.rung,
        incident=proposal.incident,
        step=proposal.step,
        changes=proposal.changes(state.overrides),
        overrides=proposal.overrides,
        base_generation=proposal.base_generation,
        steps_left=max(proposal.until_tick - state.tick, 0),
        reason=proposal.reason,
    )


def proposal_views(state: RunState) -> list[ProposalView]:
    """All that stand, the oldest first."""
    return [proposal_view(state, proposal) for proposal in state.proposals]
