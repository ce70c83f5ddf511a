"""What changes a job: controls, mode, kill switch, proposals."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.agent.state import Mode, Proposal
from trimtab.api.client.base import Caller, job_path
from trimtab.api.controls_view import ControlsView
from trimtab.api.routes.common import OPERATOR
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
        issuer: str = OPERATOR,
    ) -> ControlsView:
        """Set overrides; None lifts one."""
        body = {"overrides": dict(overrides), "reason": reason, "base_generation": base_generation, "issuer": issuer}
        return self._ask(ControlsView, "PATCH", job_path(job, "controls"), body)

    def mode(self, job: str) -> Mode:
        """How far the agent may go."""
        return self._ask(ModeView, "GET", job_path(job, "mode")).mode

    def set_mode(self, job: str, mode: Mode | str, *, reason: str, issuer: str = OPERATOR) -> Mode:
        """Let the agent go further, or less far."""
        body = {"mode": mode, "reason": reason, "issuer": issuer}
        return self._ask(ModeView, "PUT", job_path(job, "mode"), body).mode

    def kill(self, job: str, *, reason: str, issuer: str = OPERATOR) -> ControlsView:
        """Lift every override, whoever set it, and take the agent's hands off."""
        body = {"reason": reason, "issuer": issuer}
        return self._ask(ControlsView, "POST", job_path(job, "kill"), body, repeatable=True)

    def proposals(self, job: str) -> list[Proposal]:
        """Changes that wait for an answer, or stand as advice."""
        return self._ask(Proposals, "GET", job_path(job, "proposals")).proposals

    def approve(self, job: str, proposal: int, *, reason: str, issuer: str = OPERATOR) -> ControlsView:
        """Let a proposal be done."""
        body = {"reason": reason, "issuer": issuer}
        return self._ask(ControlsView, "POST", job_path(job, "proposals", proposal, "approve"), body)

    def reject(self, job: str, proposal: int, *, reason: str, issuer: str = OPERATOR) -> ControlsView:
        """Turn a proposal down."""
        body = {"reason": reason, "issuer": issuer}
        return self._ask(ControlsView, "POST", job_path(job, "proposals", proposal, "reject"), body)
