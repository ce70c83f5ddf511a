"""What changes a job: controls, mode, kill switch, proposals."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.agent.state import Mode
from trimtab.api.client.base import Caller, job_path
from trimtab.api.controls_view import ControlsView
from trimtab.api.proposal_view import ProposalView
from trimtab.api.routes.mode import ModeView
from trimtab.api.routes.proposals import Proposals
from trimtab.hooks.controls import ControlValue


class ControlCalls(Caller):
    """Controls, mode, kill switch, proposals."""

    def controls(self, job: str) -> ControlsView:
        """What is wanted of a job, and what is in effect."""
        return self._ask(ControlsView, "GET", job_path(job, "controls"))

    def patch_controls(
        self,
        job: str,
        overrides: Mapping[str, ControlValue | None],
        *,
        reason: str,
        base_generation: int | None = None,
        issuer: str | None = None,
    ) -> ControlsView:
        """Set overrides; None lifts one."""
        body = {"overrides": dict(overrides), "reason": reason, "base_generation": base_generation, "issuer": issuer}
        return self._ask(ControlsView, "PATCH", job_path(job, "controls"), body)

    def mode(self, job: str) -> Mode:
        """How far the agent may go."""
        return self._ask(ModeView, "GET", job_path(job, "mode")).mode

    def set_mode(self, job: str, mode: Mode | str, *, reason: str, issuer: str | None = None) -> Mode:
        """Let the agent go further, or less far."""
        body = {"mode": mode, "reason": reason, "issuer": issuer}
        return self._ask(ModeView, "PUT", job_path(job, "mode"), body).mode

    def kill(self, job: str, *, reason: str, issuer: str | None = None) -> ControlsView:
        """Lift every override, whoever set it, and take the agent's hands off."""
        body = {"reason": reason, "issuer": issuer}
        return self._ask(ControlsView, "POST", job_path(job, "kill"), body, repeatable=True)

    def proposals(self, job: str) -> list[ProposalView]:
        """Changes that wait for an answer, or stand as advice."""
        return self._ask(Proposals, "GET", job_path(job, "proposals")).proposals

    def approve(self, job: str, proposal: ProposalView, *, reason: str, issuer: str | None = None) -> ControlsView:
        """Let just the changes of this proposal be done."""
        return self._decide("approve", job, proposal, reason, issuer)

    def reject(self, job: str, proposal: ProposalView, *, reason: str, issuer: str | None = None) -> ControlsView:
        """Turn a proposal down."""
        return self._decide("reject", job, proposal, reason, issuer)

    def _decide(self, what: str, job: str, proposal: ProposalView, reason: str, issuer: str | None) -> ControlsView:
        body = {"changes": proposal.changes, "reason": reason, "issuer": issuer}
        return self._ask(ControlsView, "POST", job_path(job, "proposals", proposal.id, what), body)
