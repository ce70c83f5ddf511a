"""Of which incidents people are told, and why not of the others."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.agent.state import Incident, Phase, State

PHASES = (Phase.FIRING, Phase.PENDING, Phase.RESOLVED)


def by_weight(incidents: Iterable[Incident]) -> list[Incident]:
    """What fires first; then what nothing explains, what is critical, and what is newest."""
    return sorted(
        incidents,
        key=lambda one: (
            PHASES.index(one.phase),
            one.cause is not None,
            one.severity is not State.CRITICAL,
            -one.since_step,
        ),
    )


def telling(incident: Incident) -> str:
    """Whether people are told of it, or why not, in a word or two."""
    why = ["silenced"] if incident.silenced else []
    if incident.cause is not None:
        why.append(f"explained by {incident.cause.rpartition('/')[2]}")
    if why:
        return ", ".join(why)
    return {Phase.FIRING: "yes", Phase.PENDING: "not yet", Phase.RESOLVED: "is over"}[incident.phase]
