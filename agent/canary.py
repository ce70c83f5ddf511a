"""Did a change of the controls do harm? Judged on the steps after it took effect, against those before.

Per metric, with M = max(`absolute`, `relative` |median before|) the smallest difference that matters: the change did
harm when the later half of the steps after it is

    worse than the steps before:      one-sided rank test p < alpha, and medians more than M apart
    and not on its way back:          it is not better than the earlier half by the same two measures with alpha = 0.05

The second leg is there because a remedy comes after its cause: when rollouts go to another format and are remedied a
step later, the reward dips for a while whatever is done. A value that is not finite in what the loss used is harm at
once. No harm is found where it could not be told from what was there before: where the run was being harmed, or its
inputs broken, already when the change was made; and where a remedy's cause is younger than five steps, since then a
fall may be either's. Whether a remedy *helps* is for `trimtab.agent.verification`.

Missing and non-finite values are left out. With fewer than five values on either side in every metric the outcome is
INCONCLUSIVE. At alpha = 0.001 a change without any effect is called harmful about once in 2000, by both metrics
together, when steps are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from statistics import median

from trimtab.agent.ranktest import p_lower
from trimtab.agent.rung import Rung
from trimtab.agent.values import replace
from trimtab.hooks.controls import ControlValue

LEAST = 5
"""Values of a metric, before and in each half after, below which it says nothing."""
ALPHA = 1e-3
BACK = 0.05
"""p-value at which the later half counts as on its way back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What harm is seen by."""

    name: str
    """Of the signal."""
    worse: int
    """1 where higher values are worse, -1 where lower ones are."""
    absolute: float
    relative: float


METRICS = (
    Metric(name="reward_mean", worse=-1, absolute=0.02, relative=0.1),
    Metric(name="garbage_fraction", worse=1, absolute=0.02, relative=0.5),
)

Values = tuple[float | None, ...]
"""One a step, oldest first; None where it was not observed."""


class Effect(StrEnum):
    """What the steps after a change say."""

    HARMED = "harmed"
    UNHARMED = "unharmed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """The parts of what is wanted, as they were before a change."""

    rungs: tuple[Rung, ...] = ()
    """The agent's remedies in force."""
    adopted: dict[str, ControlValue] = field(default_factory=dict)
    person: dict[str, ControlValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """A change that is being watched. There is at most one."""

    generation: int
    """That brought it."""
    issuer: str
    remedy: str = ""
    """Empty for a person's change."""
    undo: Undo
    before: dict[str, Values]
    """By metric; of a remedy, since its cause began."""
    harmed_before: bool = False
    """The run was being harmed when the change was made."""
    broken_before: bool = False
    """Its inputs were broken."""
    since: int | None = None
    """Tick of the first summary in which the trainer reported it in effect."""
    since_step: int = -1
    """The step of that summary."""
    after: dict[str, Values] = field(default_factory=dict)
    broken: int = 0
    """Steps after it with a value that is not finite in what the loss used."""
    extended: bool = False
    """It was inconclusive once, and is given as many steps again."""

    def grown(self, values: Mapping[str, float | None], *, broken: bool) -> Canary:
        """With one more step after the change."""
        after = {name: (*self.after.get(name, ()), value) for name, value in values.items()}
        return replace(self, after=after, broken=self.broken + broken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The effect, and the numbers that it rests on."""

    effect: Effect
    message: str
    evidence: dict[str, float] = field(default_factory=dict)


def observed(value: Callable[[str], float | None]) -> dict[str, float | None]:
    """The metrics, by `value` of a signal's name."""
    return {metric.name: value(metric.name) for metric in METRICS}


def judged(canary: Canary) -> Judgement:
    """What the steps so far say."""
    if canary.broken and not canary.broken_before:
        message = f"values that are not finite in {canary.broken} of the steps since"
        return Judgement(effect=Effect.HARMED, message=message, evidence={"broken_steps": float(canary.broken)})
    if canary.harmed_before or canary.broken_before:
        message = "the run was being harmed before it: what goes on is not this change's"
        return Judgement(effect=Effect.UNHARMED, message=message)
    if canary.remedy and max(map(len, canary.before.values()), default=0) < LEAST:
        message = "its cause is as new as it is: what the run does is either's"
        return Judgement(effect=Effect.UNHARMED, message=message)
    found = [seen for metric in METRICS if (seen := _compared(metric, canary)) is not None]
    if not found:
        return Judgement(effect=Effect.INCONCLUSIVE, message="too few values of reward and garbage to judge by")
    evidence = {name: value for seen in found for name, value in seen.evidence.items()}
    harmed = [seen.message for seen in found if seen.effect is Effect.HARMED]
    if harmed:
        return Judgement(effect=Effect.HARMED, message="; ".join(harmed), evidence=evidence)
    message = "; ".join(seen.message for seen in found)
    return Judgement(effect=Effect.UNHARMED, message=message, evidence=evidence)


def _compared(metric: Metric, canary: Canary) -> Judgement | None:
    """One metric's word; None where it has too few values."""
    before, after = _finite(canary.before.get(metric.name, ())), canary.after.get(metric.name, ())
    half = len(after) // 2
    earlier, later = _finite(after[:half]), _finite(after[half:])
    if min(len(before), len(earlier), len(later)) < LEAST:
        return None
    least = max(metric.absolute, metric.relative * abs(median(before)))
    p = _p_worse(metric, before, later)
    worse = p < ALPHA and metric.worse * (median(later) - median(before)) > least
    back = (
        _p_worse(metric, later, earlier) < BACK and metric.worse * (median(earlier) - median(later)) > metric.absolute
    )
    evidence = {
        f"{metric.name}_before": median(before),
        f"{metric.name}_after": median(later),
        f"{metric.name}_p": p,
    }
    return Judgement(
        effect=Effect.HARMED if worse and not back else Effect.UNHARMED,
        message=f"{metric.name} {median(before):.3f} before, {median(later):.3f} after (p = {p:.2g})",
        evidence=evidence,
    )


def _p_worse(metric: Metric, reference: list[float], values: list[float]) -> float:
    """p-value of `values` being worse than `reference`."""
    return p_lower([-metric.worse * x for x in reference], [-metric.worse * x for x in values])


def _finite(values: Values) -> list[float]:
    return [value for value in values if value is not None and isfinite(value)]
