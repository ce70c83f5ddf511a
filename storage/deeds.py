"""What the audit log says of a job's ledger: every person's action, and what the agent did by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trimtab.agent.state import EventKind
from trimtab.storage.audit import BY_AGENT, Deed
from trimtab.storage.values import EntryKind

if TYPE_CHECKING:
    from trimtab.storage.inserts import NewRow

AUTOMATIC = frozenset(
    {
        EventKind.CONTROLS_CHANGED,
        EventKind.CONTROLS_TAKEN_OVER,
        EventKind.CHECKPOINT_PINNED,
        EventKind.ROLLED_BACK,
        EventKind.LOCKED_OUT,
    }
)
"""Events that a summary leads to and that are acts: commands (a restore is one), roll-backs, lock-outs."""
_PLAIN = ("job", "verb", "reason")
"""What of an action has a column of its own."""


def deeds_of(row: NewRow) -> Iterator[Deed]:
    """The deeds of one ledger row: a person's action is one, whatever it led to; of the agent's, each is."""
    if row.entry.kind is EntryKind.OPERATOR:
        yield _action(row)
        return
    for event in row.events:
        if event.kind in AUTOMATIC:
            detail: dict[str, Any] = json.loads(event.detail)
            yield Deed(
                action=event.kind,
                at=row.entry.received_at,
                origin=BY_AGENT,
                job=row.job,
                reason=event.message,
                generation=detail.get("generation"),
                detail={**detail, "attempt": event.attempt, "step": event.step, "seq": row.seq},
            )


def _action(row: NewRow) -> Deed:
    action: dict[str, Any] = json.loads(row.entry.payload)
    asked = {name: value for name, value in action.items() if name not in _PLAIN and value not in (None, "", {})}
    changes: dict[str, Any] = {}
    for event in row.events:
        detail = json.loads(event.detail)
        changes |= {name: detail[name] for name in ("generation", "before", "after") if name in detail}
    return Deed(
        action=action["verb"],
        at=row.entry.received_at,
        origin=row.origin,
        job=row.job,
        reason=action["reason"],
        generation=changes.pop("generation", None),
        detail={**asked, **changes, "seq": row.seq, "events": [event.kind for event in row.events]},
    )
