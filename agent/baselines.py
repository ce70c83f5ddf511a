"""A robust running baseline of one signal, and an anchor beside it.

Location m and scale s start, after `warmup` finite values, as their median and as max(1.4826 MAD, 1.2533 mean |x -
median| cut at 3 robust sd), both estimates of a normal standard deviation. From then on they follow the signal as a
Huber-type stochastic approximation (Huber 1964; Robbins and Monro 1951):

    w  = clip((x - m) / s, -c, c)          c = `clip` = 3
    m <- m + a s w                         a = 2 / (window + 1), window >= 50 steps
    s <- s + a s (1.2533 |w| - 1)          E|z| = 1 / 1.2533 for a normal z

so one step moves m by at most a c s (0.12 s at window 50), however wild its batch: a garbage batch moves nothing. The
location is the 50 % quantile of a symmetric signal; the signals themselves are quantiles of the step's tokens, so
what is followed is an exponential average of quantiles.

The anchor is (m, s) at the end of the warm-up, made more exact by the same steps with a = 1 / n until `settle` values
are in it: 30 values tell a location to 0.23 sd, 100 to 0.13. Then it stays there. An exponential average absorbs a slow
ramp (an average with a = 0.02 and |z| > 6 missed entropy and reward ramps in 3 of 3 seeds each); a distance to the
anchor cannot be absorbed. But an anchor knows nothing of what the run reached after it: a reward that went from 0.2 to
0.9 and back to 0.6 is above its anchor throughout. So the highest and the lowest average are kept as well, (m, s) each,
from the anchor on: a run that makes progress carries its reference along, and a fall from it cannot be absorbed either.
The average of white noise has a standard deviation of 0.14 s, so its extremes lie within half of s, which a CUSUM with
k = 1 forgives.

Non-finite values are counted and change nothing. A baseline is frozen while an incident about its signal is open, and
learnt anew (`Baseline()`) when the run enters another regime, so what it says is about the regime that it was learnt
in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from trimtab.agent.checks import MOST, require
from trimtab.agent.values import quick, replace

MAD_TO_SD = 1.4826
"""sd / MAD of a normal distribution."""
ABSOLUTE_TO_SD = 1.2533
"""sd / E|z| of a normal distribution, sqrt(pi / 2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineSettings:
    """How a baseline learns."""

    window: int = 50
    """Effective window of the exponential average, observed steps."""
    warmup: int = 30
    """Finite values before the first score."""
    settle: int = 100
    """Finite values after which the anchor stands still, if the warm-up was not longer."""
    clip: float = 3.0
    """Standardised distance at which one value's pull is cut."""
    floor_relative: float = 0.01
    """Smallest scale, as a fraction of |location|: a constant signal must not turn rounding into alarms."""
    floor_absolute: float = 1e-6
    """Smallest scale, in the signal's unit."""

    def __post_init__(self) -> None:
        require(50 <= self.window <= MOST, "baseline.window", self.window, f"50 to {MOST} steps")
        require(10 <= self.warmup <= 1000, "baseline.warmup", self.warmup, "10 to 1000 steps")
        require(0 <= self.settle <= MOST, "baseline.settle", self.settle, f"0 to {MOST} steps")
        require(1 <= self.clip <= 100, "baseline.clip", self.clip, "in [1, 100]")
        require(0 <= self.floor_relative <= 1, "baseline.floor_relative", self.floor_relative, "in [0, 1]")
        require(0 < self.floor_absolute <= MOST, "baseline.floor_absolute", self.floor_absolute, f"in (0, {MOST}]")


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A location and a scale, in the signal's unit."""

    location: float
    scale: float

    def distance(self, x: float) -> float:
        """(x - location) / scale."""
        return (x - self.location) / self.scale


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What a signal is like in this run.

    >>> settings = BaselineSettings(warmup=10)
    >>> learnt = Baseline()
    >>> for x in range(10):
    ...     learnt = learnt.updated(float(x), settings)
    >>> learnt.anchor.location, learnt.average.location
    (4.5, 4.5)
    """

    early: tuple[float, ...] = ()
    """Values of the warm-up; empty once it is over."""
    average: Level | None = None
    """Follows the signal; None during the warm-up."""
    anchor: Level | None = None
    """The level at the end of the warm-up, then that of the first `settle` values; None before."""
    unsettled: int = 0
    """Values until the anchor stands still; 0 during the warm-up too."""
    highest: Level | None = None
    """The average when its location was highest, the anchor included."""
    lowest: Level | None = None
    """The average when its location was lowest, the anchor included."""
    nonfinite: int = 0
    """Values that were not finite, and so were not learnt."""

    def updated(self, x: float, settings: BaselineSettings) -> Baseline:
        """The baseline after one more value."""
        if not math.isfinite(x):
            return replace(self, nonfinite=self.nonfinite + 1)
        if self.average is None or self.highest is None or self.lowest is None:
            early = (*self.early, x)
            if len(early) < settings.warmup:
                return Baseline(early=early, nonfinite=self.nonfinite)
            level = _level(early, settings)
            return Baseline(
                average=level,
                anchor=level,
                unsettled=max(settings.settle - len(early), 0),
                highest=level,
                lowest=level,
                nonfinite=self.nonfinite,
            )
        average = _followed(self.average, x, 2.0 / (settings.window + 1), settings)
        anchor, unsettled = self.anchor, self.unsettled
        if anchor is not None and unsettled:
            unsettled -= 1
            anchor = _followed(anchor, x, 1.0 / max(settings.settle - unsettled, settings.warmup), settings)
        return Baseline(
            average=average,
            anchor=anchor,
            unsettled=unsettled,
            highest=average if average.location > self.highest.location else self.highest,
            lowest=average if average.location < self.lowest.location else self.lowest,
            nonfinite=self.nonfinite,
        )


def _floored(location: float, scale: float, settings: BaselineSettings) -> Level:
    floor = max(settings.floor_absolute, settings.floor_relative * abs(location))
    return Level(location=location, scale=max(scale, floor))


def _level(values: tuple[float, ...], settings: BaselineSettings) -> Level:
    middle = median(values)
    deviations = [abs(x - middle) for x in values]
    mad = MAD_TO_SD * median(deviations)
    cut = settings.clip * mad if mad > 0 else math.inf
    absolute = ABSOLUTE_TO_SD * sum(min(deviation, cut) for deviation in deviations) / len(deviations)
    return _floored(middle, max(mad, absolute), settings)


def _followed(level: Level, x: float, rate: float, settings: BaselineSettings) -> Level:
    w = min(max(level.distance(x), -settings.clip), settings.clip)
    location = level.location + rate * level.scale * w
    scale = level.scale * (1.0 + rate * (ABSOLUTE_TO_SD * abs(w) - 1.0))
    return _floored(location, scale, settings)
