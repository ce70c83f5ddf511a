"""A logged step as the summary that the agent takes: mapped by meaning, with what the log cannot tell beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trimtab.agent.signals import NEVER_INFINITE, SIGNALS
from trimtab.api.tail.assembly import LoggedStep
from trimtab.api.tail.frameworks import Censored, Framework, Meaning
from trimtab.hooks.log_facts import LogFacts
from trimtab.hooks.records import MAX_NAME_LENGTH, MAX_SCALARS, StepSummary

READ = frozenset(SIGNALS) | frozenset(NEVER_INFINITE) | {"reward_std", "mask_tokens_excess", "centering_size"}
"""Names that the agent reads: no key of another meaning may have one."""
_APART = "log/"
"""Before a key that would have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """The numbers of a step under trimtab's names, or their own."""

    scalars: dict[str, float]
    core: tuple[str, ...]
    """Those that have a name of trimtab's, whatever their value."""
    censored: dict[str, Censored]
    impossible: int = 0
    """Values that are left out for what they cannot be: shares outside [0, 1]."""
    too_many: int = 0
    """Values that are left out since there are more than a summary has room for, or their name is too long."""


def mapped(values: dict[str, float], framework: Framework) -> Mapped:
    """See the module."""
    scalars: dict[str, float] = {}
    core: list[str] = []
    censored: dict[str, Censored] = {}
    impossible = too_many = 0
    meanings = {key: framework.meaning(key) for key in values}
    first = {name: key for key in reversed(_in_order(values, framework)) if (name := _name(meanings[key]))}
    chosen = set(first.values())
    for key in sorted(values, key=lambda each: (each not in chosen, meanings[each] is None)):
        meaning, value = meanings[key], values[key]
        name = meaning.name if meaning is not None and key in chosen else _own(key)
        if meaning is not None and key in chosen:
            core.append(name)
            value = meaning.offset + meaning.factor * value
        share = name.endswith("_fraction") or (meaning is not None and meaning.fraction)
        if share and math.isfinite(value) and not 0 <= value <= 1:
            impossible += 1
        elif len(scalars) >= MAX_SCALARS or len(name) > MAX_NAME_LENGTH:
            too_many += 1
        else:
            scalars[name] = value
            if meaning is not None and meaning.censored is not None:
                censored[name] = meaning.censored
    return Mapped(scalars=scalars, core=tuple(core), censored=censored, impossible=impossible, too_many=too_many)


def _in_order(values: dict[str, float], framework: Framework) -> list[str]:
    """The keys in the order of the table, so that the first of several with one name counts."""
    place = {key: i for i, key in enumerate(framework.keys)}
    return sorted(values, key=lambda key: place.get(framework.bare(key), place.get(key, len(place))))


def _name(meaning: Meaning | None) -> str:
    return "" if meaning is None else meaning.name


def _own(key: str) -> str:
    return f"{_APART}{key}" if key in READ else key


def summary_of(
    step: LoggedStep, found: Mapped, *, job: str, source: str, framework: str, vanished: tuple[str, ...], now: float
) -> StepSummary:
    """The summary of a step, read `now`."""
    told = step.time is not None and math.isfinite(step.time)
    lag = round(max(now - (step.time or 0.0), 0.0), 3) if told else None
    facts = LogFacts(
        source=source, framework=framework, censored=dict(found.censored), vanished=vanished, lag_seconds=lag
    )
    return StepSummary(job=job, attempt=step.attempt, step=step.step, scalars=found.scalars, log=facts)
