"""Wait for a person. The last resort, and off by default: a cluster that waits costs what one that trains costs. The
trainer goes on by itself when its patience ends (`trimtab.hooks.pause`)."""

from __future__ import annotations

from trimtab.agent.remedy import Refusal, Situation, offered
from trimtab.hooks.controls import ControlValue


def propose(situation: Situation) -> dict[str, ControlValue] | Refusal:
    """Paused at the next step boundary."""
    return offered({"paused": True}, situation)
