"""Many steps as one: what is kept of a stretch of steps, and how two stretches are merged.

A stretch is `level` consecutive step numbers of an attempt, of which any may be missing. Everything is a count, a sum,
a minimum or a maximum, so merging is addition, whatever the order: a summary that comes late is merged in when it
comes, and the ten stretches of level 10 together are the one of level 100.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.records import NonFinite, SignTotals, StepSummary
from trimtab.hooks.sketch import Sketch

Part = TypeVar("Part")

LEVELS = (10, 100)
"""Steps of a stretch, finest first; each divides the next."""
COLUMNS = np.dtype(
    [
        ("total", "<f8"),
        ("low", "<f8"),
        ("high", "<f8"),
        ("low_at", "u1"),
        ("high_at", "u1"),
        ("odd_at", "u1"),
        ("odd", "u1"),
        ("finite", "u1"),
        ("nan", "u1"),
        ("posinf", "u1"),
        ("neginf", "u1"),
    ]
)
"""Of one signal: sum, minimum and maximum of its finite values; the steps of those two and of the first value that is
not finite, counted from the first of the stretch; which of `ODD` that was, from 1; how many there were of each kind."""
ODD = {"nan": math.nan, "posinf": math.inf, "neginf": -math.inf}


def first_of(step: int, level: int) -> int:
    """First step of the stretch that a step lies in."""
    return step - step % level


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SignalRollup:
    """Every signal over one stretch."""

    level: int
    first: int
    """First step of the stretch, observed or not."""
    last: int
    """Last step that was observed."""
    steps: int
    """How many were observed."""
    names: tuple[str, ...]
    table: NDArray[np.void]
    """[names] of `COLUMNS`."""

    @classmethod
    def of(cls, level: int, names: Sequence[str], steps: Sequence[int], values: NDArray[np.float64]) -> Self:
        """From [steps, names] values of at least one step; the steps ascend and lie in one stretch."""
        first = first_of(steps[0], level)
        offsets = np.asarray(steps) - first
        finite = np.isfinite(values)
        table = np.zeros(len(names), COLUMNS)
        table["finite"] = finite.sum(0)
        kinds = [np.isnan(values), np.isposinf(values), np.isneginf(values)]
        for name, kind in zip(ODD, kinds, strict=True):
            table[name] = kind.sum(0)
        first_odd = finite.argmin(0)
        table["odd_at"] = offsets[first_odd]
        for number, kind in enumerate(kinds, start=1):
            table["odd"][kind[first_odd, np.arange(len(names))]] = number
        with_low = np.where(finite, values, np.inf)
        with_high = np.where(finite, values, -np.inf)
        table["low_at"], table["high_at"] = offsets[with_low.argmin(0)], offsets[with_high.argmax(0)]
        some = table["finite"] > 0
        table["total"] = np.where(finite, values, 0.0).sum(0)
        table["low"][some], table["high"][some] = with_low.min(0)[some], with_high.max(0)[some]
        return cls(level=level, first=first, last=steps[-1], steps=len(steps), names=tuple(names), table=table)

    @classmethod
    def read(cls, data: bytes, *, level: int, first: int, last: int, steps: int, names: Sequence[str]) -> Self:
        """From what `packed` gave, and the rest."""
        table = np.frombuffer(data, COLUMNS)
        return cls(level=level, first=first, last=last, steps=steps, names=tuple(names), table=table)

    def packed(self) -> bytes:
        """The table as bytes, a column after the other within each signal."""
        return self.table.tobytes()

    def merged(self, other: Self) -> Self:
        """The steps of both, which share none."""
        names = self.names if other.names == self.names else (*self.names, *_new(self.names, other.names))
        mine, its = _widened(self, names), _widened(other, names)
        table = np.zeros(len(names), COLUMNS)
        for column in ("total", "finite", *ODD):
            table[column] = mine[column] + its[column]
        for column, better in (("low", np.less), ("high", np.greater)):
            at = f"{column}_at"
            take = (its["finite"] > 0) & (
                (mine["finite"] == 0)
                | better(its[column], mine[column])
                | ((its[column] == mine[column]) & (its[at] < mine[at]))
            )
            table[column] = np.where(take, its[column], mine[column])
            table[at] = np.where(take, its[at], mine[at])
        take = (its["odd"] > 0) & ((mine["odd"] == 0) | (its["odd_at"] < mine["odd_at"]))
        for column in ("odd", "odd_at"):
            table[column] = np.where(take, its[column], mine[column])
        return type(self)(
            level=self.level,
            first=self.first,
            last=max(self.last, other.last),
            steps=self.steps + other.steps,
            names=names,
            table=table,
        )

    def points(self, name: str) -> list[tuple[int, float]]:
        """Values that the signal had, with their steps, ascending: its least, its greatest, its first not finite."""
        row = self.table[self.names.index(name)]
        found: dict[int, float] = {}
        if row["finite"]:
            found = {int(row["low_at"]): float(row["low"]), int(row["high_at"]): float(row["high"])}
        if row["odd"]:
            found[int(row["odd_at"])] = list(ODD.values())[row["odd"] - 1]
        return [(self.first + offset, found[offset]) for offset in sorted(found)]


def _new(names: tuple[str, ...], more: tuple[str, ...]) -> list[str]:
    known = set(names)
    return [name for name in more if name not in known]


def _widened(rollup: SignalRollup, names: tuple[str, ...]) -> NDArray[np.void]:
    """The table with a row for each of the names, empty where the signal was not observed."""
    if rollup.names == names:
        return rollup.table
    place = {name: i for i, name in enumerate(names)}
    wide = np.zeros(len(names), COLUMNS)
    wide[[place[name] for name in rollup.names]] = rollup.table
    return wide


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What was measured on the tokens of a stretch: the sums and sketches of its summaries, of every rank, added."""

    summaries: int
    first_step: int
    """First step that was observed."""
    last_step: int
    """Last step that was observed."""
    sketches: dict[str, Sketch]
    negative: SignTotals
    zero: SignTotals
    positive: SignTotals
    nonfinite: dict[str, NonFinite]

    @classmethod
    def of(cls, summary: StepSummary) -> Self:
        """Of a single summary."""
        return cls(
            summaries=1,
            first_step=summary.step,
            last_step=summary.step,
            sketches=summary.sketches,
            negative=summary.negative,
            zero=summary.zero,
            positive=summary.positive,
            nonfinite=summary.nonfinite,
        )

    def merged(self, other: Self) -> Self:
        """The summaries of both, which share none."""
        return type(self)(
            summaries=self.summaries + other.summaries,
            first_step=min(self.first_step, other.first_step),
            last_step=max(self.last_step, other.last_step),
            sketches=_both(self.sketches, other.sketches, Sketch.merged),
            negative=self.negative.merged(other.negative),
            zero=self.zero.merged(other.zero),
            positive=self.positive.merged(other.positive),
            nonfinite=_both(self.nonfinite, other.nonfinite, _added),
        )


def _both(one: Mapping[str, Part], other: Mapping[str, Part], merged: Callable[[Part, Part], Part]) -> dict[str, Part]:
    """Parts by name, merged where both have one."""
    return {
        name: merged(one[name], other[name]) if name in one and name in other else (one.get(name) or other[name])
        for name in sorted(one.keys() | other.keys())
    }


def _added(one: NonFinite, other: NonFinite) -> NonFinite:
    return NonFinite(**{f.name: getattr(one, f.name) + getattr(other, f.name) for f in fields(NonFinite)})
