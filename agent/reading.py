"""What a detector is shown of one step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from trimtab.agent.baselines import Baseline, Level
from trimtab.agent.reference import Reference
from trimtab.agent.regime import conditioned
from trimtab.agent.signals.step import Step
from trimtab.agent.state import State
from trimtab.agent.tracks import Track
from trimtab.agent.values import quick
from trimtab.hooks.records import StepSummary

Reached = Literal["anchor", "highest", "lowest"]
"""Levels of a baseline that a value can be compared with; see `trimtab.agent.baselines`."""


LITTLE = 0.25
"""Mean share of tokens with an advantage below which clip fractions alarm no one."""


def share_of(peak: float, share: float) -> float:
    """A share of a reward; of one below 0 what lies as far beneath it, since rewards count by size."""
    return peak - (1 - share) * abs(peak)


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One step, beside what came before it."""

    step: Step
    """Its summary, and what signals have worked out of it."""
    tracks: Mapping[str, Track]
    """By signal; windows include this step, baselines do not."""
    window: int
    """Steps in a window mean, before it is rounded up to whole cycles of passes; see `trimtab.agent.tracks`."""
    reference: Reference | None = None
    """What a calibration of the job's format says, where it is about a regime such as this."""
    past: Mapping[str, Level] = field(default_factory=dict)
    """What some signals were like in the attempts before, at their worst; empty in the first attempt."""
    steps: int = 0
    """Steps judged in this attempt, this one included."""

    @property
    def summary(self) -> StepSummary:
        """What the trainer reports."""
        return self.step.summary

    def value(self, name: str) -> float | None:
        """This step's value of a signal; None when it has none."""
        track = self.tracks.get(name)
        return None if track is None or track.age or not track.recent else track.recent[-1]

    def mean(self, name: str, *, max_age: int | None = None) -> float | None:
        """Mean of the latest full window of a signal; None while it fills, or when it was last seen over `max_age`
        steps ago.

        `max_age` defaults to one window, or to the signal's own distance between two values where that is longer. The
        mean is not finite when a value in the window is not.
        """
        track = self.tracks.get(name)
        if track is None:
            return None
        limit = max(self.window, track.gap) if max_age is None else max_age
        return None if track.age > limit else track.mean(self.window)

    def median(self, name: str) -> float | None:
        """Median of the latest full window of a signal that has a value now; None otherwise.

        NaN when a value in the window is not finite.
        """
        track = self.tracks.get(name)
        if track is None or track.age or not track.is_full(self.window):
            return None
        return median(track.recent) if all(map(math.isfinite, track.recent)) else math.nan

    def peak(self, name: str) -> float | None:
        """Highest window mean of a signal so far in this attempt."""
        track = self.tracks.get(name)
        return None if track is None else track.peak

    def is_anchored(self, name: str) -> bool:
        """True once the signal's baseline has an anchor."""
        return self.level(name, "anchor") is not None

    def is_settled(self, name: str) -> bool:
        """True once that anchor stands still: what is learnt from more values is not off by as much."""
        baseline = self._baseline(name)
        return baseline is not None and baseline.anchor is not None and not baseline.unsettled

    def level(self, name: str, which: Reached) -> Level | None:
        """A reference of the signal's baseline, that of this step's pass where passes differ; None during its
        warm-up."""
        baseline = self._baseline(name)
        level: Level | None = None if baseline is None else getattr(baseline, which)
        return level

    def _baseline(self, name: str) -> Baseline | None:
        track, pass_index = self.tracks.get(name), self.step.summary.pass_index
        if track is None:
            return None
        return track.of_pass(conditioned(name, pass_index)) if pass_index else track.baseline

    def distance(self, name: str, which: Reached = "anchor", *, floor: float = 0.0) -> float | None:
        """This step's distance to a reference in robust sd, or in `floor` where that is larger; None without a finite
        value or a reference."""
        value, level = self.value(name), self.level(name, which)
        if value is None or level is None or not math.isfinite(value):
            return None
        return (value - level.location) / max(level.scale, floor)

    @property
    def learns_from_little(self) -> bool:
        """True where most tokens of the window have no advantage: what the clip does to a few groups of a policy that
        answers nearly everything alike harms little, and its share is a matter of single responses."""
        share = self.mean("advantage_fraction")
        return share is not None and share < LITTLE

    @staticmethod
    def broken(*values: float | None) -> bool:
        """True where one of the values was seen and is not finite: no verdict on them can be green."""
        return any(value is not None and not math.isfinite(value) for value in values)

    def missing(self, *names: str) -> State:
        """Why these signals cannot be judged: NOT_OBSERVED if one of them has never been seen, else INCONCLUSIVE."""
        unseen = any(name not in self.tracks or not self.tracks[name].recent for name in names)
        return State.NOT_OBSERVED if unseen else State.INCONCLUSIVE
