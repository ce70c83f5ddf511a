"""Is this a mismatch that a remedy is for, or a fault that no control can mend?

Remedies are for statistical mismatch: finite values, a spread and no offset, and weights that still carry enough of
the batch. Anything else needs a person or an engine restart, and a correction on top of it would only hide it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from trimtab.agent.config import AgentConfig
from trimtab.agent.incidents import broken
from trimtab.agent.reading import Reading
from trimtab.agent.run_state import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why no remedy may be applied."""

    kind: str
    """Stable while the fault lasts, so that it is put on record once."""
    reason: str


def fault(config: AgentConfig, state: RunState, reading: Reading) -> Fault | None:
    """The fault that stands in the way of every remedy, or None."""
    for incident in broken(state.incidents):
        return Fault(kind=incident.detector, reason=f"no remedy on broken inputs: {incident.message}")
    offset, limit = reading.value("mismatch_mean"), config.detectors.mismatch.offset_limit
    if offset is not None and abs(offset) > limit:
        return Fault(
            kind="offset",
            reason=f"log-probs differ by {offset:+.2f} nats on average (limit {limit:g}): "
            "check the weights, scales and token alignment",
        )
    ess, floor = reading.mean("ess"), config.policy.ess_floor
    if ess is not None and not (isfinite(ess) and ess >= floor):
        return Fault(kind="ess", reason=f"effective sample size {ess:.3f} is below {floor:g}: inconclusive")
    return None
