"""A signal is on its way to a limit: how long until it is there.

Over the latest n = 30 values of a signal, oldest first, Theil's incomplete estimate of the slope

    b = median of (x[i + 15] - x[i]) / 15, i = 0..14

is robust against 7 wild values of either half. The level now is the median of x[i] + b (n - 1 - i), and with the limit
L the time to it is (L - level) / b steps. WARN when that is at most 40 steps, 14 of the 15 differences point to L, and
the window has already covered a quarter of the way to L from where it began. Limits: mismatch spread 0.2 nats (what
the conjunction alarms at), `token_mult_prob_error` 1.05, effective sample size 0.3. Of a signal beyond its limit
nothing is said here.

Expected false alarms: for independent values 16 of 2^15 windows pass the test of signs; a quarter of the way to a limit
that is four times the level is some 5 sd of a spread that wanders by 15 %. None seen on healthy runs. A
`token_mult_prob_error` of 1.01 + 0.0005 a step is seen at step 40, 40 steps ahead.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from statistics import median
from typing import ClassVar

from trimtab.agent.checks import MOST, require
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.state import Finding, State
from trimtab.agent.values import quick

WINDOW = 30
"""Values that a slope is read from."""
HALF = WINDOW // 2
AGREE = 14
"""Differences, of `HALF`, that must point to the limit."""
COVERED = 0.25
"""Share of the way to the limit that the window must have covered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlopeSettings:
    """Where to, and how soon."""

    horizon: float = 40.0
    """Steps to the limit at which it alarms."""
    mismatch_std: float = 0.2
    """Nats."""
    token_mult_prob_error: float = 1.05
    ess: float = 0.3

    def __post_init__(self) -> None:
        require(1 <= self.horizon <= MOST, "detectors.slope.horizon", self.horizon, f"1 to {MOST} steps")
        for name in LIMITED:
            value = getattr(self, name)
            require(0 < value <= MOST, f"detectors.slope.{name}", value, f"in (0, {MOST}]")


LIMITED = {"mismatch_std": True, "token_mult_prob_error": True, "ess": False}
"""Signals with a limit, each in the setting of its name: whether it is one from above."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A fitted line."""

    values: tuple[float, ...]
    """That it is fitted to, oldest first."""
    slope: float
    """By step."""
    agree: int
    """Differences that have the slope's sign."""

    @property
    def level(self) -> float:
        """Where it is now."""
        return median([value + self.slope * (WINDOW - 1 - i) for i, value in enumerate(self.values)])


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """Remembers the latest values of each signal."""

    ROLE: ClassVar[Role] = Role.EARLY
    SIGNALS: ClassVar[tuple[str, ...]] = ("mismatch_std", "ess")

    mismatch_std: tuple[float, ...] = ()
    token_mult_prob_error: tuple[float, ...] = ()
    ess: tuple[float, ...] = ()

    def update(self, settings: SlopeSettings, reading: Reading) -> tuple[Slope, Finding]:
        """See the module."""
        values = {name: _followed(getattr(self, name), reading.value(name)) for name in LIMITED}
        lines = {name: fitted(latest) for name, latest in values.items() if len(latest) == WINDOW}
        after = Slope(**values)
        if not lines:
            state = State.INCONCLUSIVE if any(values.values()) else reading.missing("mismatch_std")
            return after, Finding(state=state, message=f"fewer than {WINDOW} values of any signal that has a limit")
        times = {name: time_to(line, getattr(settings, name), upward=LIMITED[name]) for name, line in lines.items()}
        name = min(times, key=lambda each: times[each])
        line, limit, steps = lines[name], getattr(settings, name), times[name]
        evidence = {name: line.level, "slope": line.slope, "limit": limit}
        if steps > settings.horizon and reading.broken(*map(reading.value, LIMITED)):
            return after, Finding(state=State.INCONCLUSIVE, message="a signal that has a limit is not finite")
        if not isfinite(steps):
            return after, Finding(state=State.OK, evidence=evidence, message="nothing is on its way to a limit")
        return after, Finding(
            state=State.WARN if steps <= settings.horizon else State.OK,
            score=settings.horizon / max(steps, 1e-9),
            evidence=evidence | {"steps_to_limit": steps},
            message=f"{name} {line.level:.4g} moves by {line.slope:+.2g} a step and reaches {limit:g} in {steps:.0f} "
            "steps",
        )


def _followed(latest: tuple[float, ...], value: float | None) -> tuple[float, ...]:
    return latest if value is None or not isfinite(value) else (*latest, value)[-WINDOW:]


def fitted(x: tuple[float, ...]) -> Line:
    """The robust line through `WINDOW` values, oldest first."""
    differences = [after - before for before, after in zip(x, x[HALF:], strict=False)]
    slope = median(differences) / HALF
    return Line(values=x, slope=slope, agree=sum([each * slope > 0 for each in differences]))


def time_to(line: Line, limit: float, *, upward: bool) -> float:
    """Steps until the line reaches `limit` from the side where it is not beyond it.

    Infinity where it does not, or where that is not told.
    """
    if line.agree < AGREE:
        return float("inf")
    level = line.level
    start = level - line.slope * (WINDOW - 1)
    ahead, way = limit - level, limit - start
    if (way > 0) is not upward or line.slope * ahead <= 0 or abs(level - start) < COVERED * abs(way):
        return float("inf")
    return ahead / line.slope
