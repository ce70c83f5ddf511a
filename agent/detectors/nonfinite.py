"""A value that the loss used is not finite.

Judged on one step, without baseline or patience: one NaN under the loss mask ruins the update, and what follows is
its consequence. CRITICAL when any tensor, the loss, the gradient norm or the update norm has one; WARN when only the
entropy has, which blinds a diagnostic (padded vocabularies give 0 * -inf) and leaves the update alone. The root is the
earliest in the order in which a fault travels through a step: rollout, old, train log-probs, entropy, advantages, loss,
gradient norm, update norm. Values outside the mask are counted, and say nothing.

Expected false alarms: none. An infinite mean would be no use, so the count itself is the evidence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.signals import DEPENDENCY_ORDER, NEVER_INFINITE
from trimtab.agent.state import Finding, State
from trimtab.hooks.records import NonFinite, StepSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFiniteSettings:
    """There is nothing to set: no number of NaNs is acceptable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFiniteValues:
    """Remembers nothing."""

    ROLE: ClassVar[Role] = Role.INPUT
    SIGNALS: ClassVar[tuple[str, ...]] = ()

    def update(self, settings: NonFiniteSettings, reading: Reading) -> tuple[NonFiniteValues, Finding]:  # noqa: ARG002
        """See the module."""
        found = unusable(reading.summary)
        if not found:
            return self, _finite(reading.summary)
        root = next((name for name in DEPENDENCY_ORDER if name in found), min(found))
        rest = [name for name in found if name != root]
        message, rule = f"{root}: {_kinds(found[root])}", root if root == "entropy" else ""
        if rest:
            message += f"; then {', '.join(rest)}"
        if root == "rollout_logprobs" and _nothing_left(reading.summary):
            rule = "sampler"
            message += ". The sampler gave no finite log-prob at all: stop it and load its weights again"
        evidence = {f"{name}.{kind}": float(n) for name, counts in found.items() for kind, n in counts.items() if n}
        return self, Finding(
            state=State.WARN if set(found) == {"entropy"} else State.CRITICAL,
            score=float(sum(n for counts in found.values() for n in counts.values())),
            evidence=evidence,
            message=message,
            rule=rule,
        )


def _finite(summary: StepSummary) -> Finding:
    if summary.log is None:
        return Finding(state=State.OK, message="every value is finite")
    if not any(name in summary.scalars for name in NEVER_INFINITE):
        message = f"none of {', '.join(NEVER_INFINITE)} is logged"
        return Finding(state=State.NOT_OBSERVED, message=message)
    message = "what is logged is finite; what the logger left out or averaged away is not seen"
    return Finding(state=State.OK, message=message)


def unusable(summary: StepSummary) -> dict[str, dict[str, int]]:
    """Counts by kind of everything in a step that is not finite, by name."""
    found = {name: _counts(counts) for name, counts in summary.nonfinite.items() if counts.live}
    for name in NEVER_INFINITE:
        value = summary.scalars.get(name, 0.0)
        if not math.isfinite(value):
            kinds = {"NaN": math.isnan(value), "+inf": value == math.inf, "-inf": value == -math.inf}
            found[name] = {kind: int(is_it) for kind, is_it in kinds.items()}
    return found


def _counts(counts: NonFinite) -> dict[str, int]:
    return {"NaN": counts.nan, "+inf": counts.posinf, "-inf": counts.neginf}


def _kinds(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in counts.items() if n)


def _nothing_left(summary: StepSummary) -> bool:
    """No live token had a finite sampler log-prob."""
    mismatch = summary.sketches.get("mismatch")
    return mismatch is None or not mismatch.n
