"""Is this a mismatch that a remedy is for, or a fault that no control can mend?

Remedies are for statistical mismatch: finite values, a spread and no offset, and weights that still carry enough of
the batch. Anything else needs a person or an engine restart, and a correction on top of it would only hide it. The
faults have names: those of `trimtab.agent.detectors.pipeline`, values that are not finite, and a mask without tokens.
Right after a resume nothing is done either.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from trimtab.agent.config import AgentConfig
from trimtab.agent.incidents import broken
from trimtab.agent.reading import Reading
from trimtab.agent.resume import in_grace
from trimtab.agent.run_state import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why no remedy may be applied."""

    kind: str
    """Stable while the fault lasts, so that it is put on record once."""
    reason: str


def fault(config: AgentConfig, state: RunState, reading: Reading) -> Fault | None:
    """The fault that stands in the way of every remedy, or None."""
    for incident in broken(state.incidents, config.incidents):
        kind = incident.rule or incident.detector
        return Fault(kind=kind, reason=f"no remedy on broken inputs: {incident.message}")
    pipeline = state.verdicts.get("pipeline")
    if pipeline is not None and pipeline.state.alarming and pipeline.rule != "latent":  # which no live token shows
        return Fault(kind=pipeline.rule, reason=f"no remedy for a fault of the pipeline: {pipeline.message}")
    ess, floor = reading.mean("ess"), config.policy.ess_floor
    if ess is not None and not (isfinite(ess) and ess >= floor):
        return Fault(kind="ess", reason=f"effective sample size {ess:.3f} is below {floor:g}: inconclusive")
    if in_grace(config.incidents.grace, state.steps, state.tick):
        return Fault(kind="grace", reason=f"resumed {state.steps} steps ago: what alarms may pass")
    return None
