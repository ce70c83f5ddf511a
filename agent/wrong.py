"""What is wrong that a remedy is for.

1. An incident of role SIGNATURE: low precision shows in the ratios, or loose clip bounds do. The first in the order of
   the detectors.
2. A reward that falls in a run that is off-policy: its rollouts are at least one version old on average, or the
   sampler's log-probs lie `OFF_POLICY` nats or more off the trainer's. Nothing is remedied where neither is so, or
   neither is reported: on-policy a fall has another cause. Entropy alone asks for nothing: it moves in runs
   that are well too. Under a remedy, harm counts only where it does not end (`trimtab.agent.verification`): a policy
   takes its time to come back, also after a harmful change was taken back, which explains the harm.
3. Gradients that spike (an early sign of their norm) in a trainer that computes in low precision, while the ratios show
   nothing.

An incident counts while it is firing and alarms.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from trimtab.agent.detector import Role
from trimtab.agent.incidents import alarming, fingerprint, is_open, played_by
from trimtab.agent.reading import Reading
from trimtab.agent.remedy import HIGH_PRECISION
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Incident, State

OFF_POLICY = 0.02
"""Mean spread of the mismatch, nats: above FP8 without outliers (0.012 to 0.018), which never failed by itself."""
LASTS = 10
"""Steps in a row after which a decline is more than a few batches of hard prompts; a collapse counts at once."""
MILD = "clipping"
"""The detector of noise that is small and lasts."""
OVERREACH = "overreach"
"""The detector of updates that leave their batch."""
REWARD = "reward"
"""The detector whose harm a remedy can be for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """What asks for a remedy."""

    incident: Incident
    gradients: bool = False
    """Only gradients show anything."""
    mild: bool = False
    """The noise is small, and lasts."""
    overreach: bool = False
    """Nothing holds the updates near the batch that they are made on."""


def signed(state: RunState) -> bool:
    """An incident of the signature is open."""
    return any(is_open(state.incidents.get(fingerprint(state.job, name))) for name in played_by(Role.SIGNATURE))


def off_policy(reading: Reading) -> bool:
    """The samples are not quite the trainer's own."""
    spread, staleness = reading.mean("mismatch_std"), reading.value("staleness")
    stale = staleness is not None and staleness >= 1
    return stale or (spread is not None and isfinite(spread) and spread >= OFF_POLICY)


def what_is_wrong(state: RunState, reading: Reading, *, patience: int) -> Wrong | None:
    """The first of the three, or None; harm is given `patience` steps to end by itself after a rollback."""
    for incident in alarming(state.incidents, Role.SIGNATURE):
        return Wrong(incident=incident, mild=incident.detector == MILD, overreach=incident.detector == OVERREACH)
    undone = state.ladder.rollbacks[-1:]
    explained = bool(undone) and state.tick - undone[0] < patience
    if off_policy(reading) and not state.ladder.rungs and not explained:
        for incident in alarming(state.incidents, Role.HARM):
            lasts = incident.severity is State.CRITICAL or incident.alarms >= LASTS
            if lasts and incident.detector == REWARD:
                return Wrong(incident=incident)
    if reading.summary.applied.train_format not in HIGH_PRECISION:
        for incident in alarming(state.incidents, Role.EARLY):
            if any(name.startswith("grad_norm") for name in incident.evidence):
                return Wrong(incident=incident, gradients=True)
    return None
