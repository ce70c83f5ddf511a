"""What people do: who, why, and into the ledger."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from trimtab.agent.advance import Outcome
from trimtab.agent.state import OperatorAction, OperatorVerb
from trimtab.api.access.principal import Principal
from trimtab.api.routes.common import OPERATOR, Issuer, Reason
from trimtab.api.service import Service
from trimtab.api.views import Body


class Reasoned(Body):
    """Why something is done, and by whom."""

    reason: Reason
    issuer: Issuer | None = Field(
        default=None, description="Who asks for it; the token's name when it is missing, `operator` without one."
    )

    def by(self, principal: Principal) -> str:
        """Who is said to have asked for it. The audit log names the token as well."""
        return self.issuer or (principal.name if principal.token is not None else OPERATOR)


def acted(
    service: Service,
    principal: Principal,
    job: str,
    verb: OperatorVerb,
    asked: Reasoned,
    *,
    base_generation: int | None = None,
    **fields: Any,
) -> Outcome:
    """Have a person's decision folded in; `fields` are those of the action. Raises what `Service.operate` does."""
    action = OperatorAction(job=job, verb=verb, issuer=asked.by(principal), reason=asked.reason, **fields)
    return service.operate(action, base_generation=base_generation, origin=principal.origin)
