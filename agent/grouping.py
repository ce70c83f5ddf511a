"""Which incident explains another: of all that have one cause, one is told.

An incident is explained by one that fires at the time, that nothing explains, that is no milder, and whose role comes
no later: broken inputs, then the signature of low precision, then harm, then early signs. NaN log-probs explain a
reward of 0, a mismatch explains that the reward falls, the fall of the reward that responses turn to garbage; an early
sign explains no harm. Broken inputs explain only while they are CRITICAL. An incident that has been told stays told,
and one that is explained is told once nothing explains it any more.
"""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.agent.detector import Role
from trimtab.agent.detectors import DETECTORS
from trimtab.agent.state import Incident, Phase, State, Verdict

RANK = {Role.INPUT: 0, Role.SIGNATURE: 1, Role.HARM: 2, Role.EARLY: 3}
"""A role explains those with its number or a higher one."""


RANKS = {name: RANK[detector.ROLE] for name, detector in DETECTORS.items()}
"""By detector."""


def order(verdict: Verdict) -> tuple[int, bool]:
    """Sorts a step's verdicts so that what explains comes before what it explains."""
    return RANKS[verdict.detector], verdict.state is not State.CRITICAL


def root_of(incident: Incident, incidents: Mapping[str, Incident], recent: int) -> Incident | None:
    """The incident that explains another, or None.

    Args:
        incident: the other.
        incidents: all, by fingerprint.
        recent: steps judged OK after which an incident explains nothing any more.
    """
    roots = [
        root
        for root in incidents.values()
        if root.fingerprint != incident.fingerprint
        and root.phase is Phase.FIRING
        and root.cause is None
        and root.clean < recent
        and RANKS[root.detector] <= RANKS[incident.detector]
        and (root.severity is State.CRITICAL or _explains_as_warning(root, incident))
    ]
    return min(roots, key=lambda root: (RANKS[root.detector], root.onsets[-1:]), default=None)


def _explains_as_warning(root: Incident, incident: Incident) -> bool:
    return incident.severity is State.WARN and DETECTORS[root.detector].ROLE is not Role.INPUT
