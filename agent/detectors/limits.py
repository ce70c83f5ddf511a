"""Fixed limits, which need no history.

`rules = "default"`, WARN:

1. median5(ESS) < 0.3, ESS being the effective share of the tokens under raw weights trainer / sampler: a few tokens
   would carry any correction.
2. median5(k3 divergence of the mismatch) > 1 nat. Healthy dense models are at 1e-5 to 1e-2, mixtures of experts up to
   0.1. The median, because one token at a log-ratio of 20 makes the k3 of its step 10^4.

`rules = "note"` adds an alarm table that is often quoted, for comparison: |asymmetry| > 0.2 nats, entropy above the
mean of the last 20 steps by 3 sd, garbage > 5 %, each on one step. Measured on small healthy runs it fires on 12 of 13:
staleness alone makes an asymmetry of 0.25.

Garbage, offsets and non-finite values have detectors of their own. Expected false alarms of the default: none seen;
the lowest mean5(ESS) of a healthy run was 0.93.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from statistics import fmean, stdev
from typing import ClassVar, Literal, get_args

from trimtab.agent.checks import MOST, require
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.state import Finding, State

Rules = Literal["default", "note"]
NOTE_WINDOW = 20
"""Steps of the note's rolling mean."""
NOTE_ASYMMETRY = 0.2
"""Nats."""
NOTE_GARBAGE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSettings:
    """Which rules, and their limits."""

    rules: str = "default"
    """`default` or `note`."""
    ess: float = 0.3
    """Floor of median5(ESS)."""
    mismatch_kl: float = 1.0
    """Ceiling of median5(k3), nats."""

    def __post_init__(self) -> None:
        known = get_args(Rules)
        require(self.rules in known, "detectors.limits.rules", self.rules, f"one of {', '.join(known)}")
        require(0 <= self.ess < 1, "detectors.limits.ess", self.ess, "in [0, 1)")
        require(0 < self.mismatch_kl <= MOST, "detectors.limits.mismatch_kl", self.mismatch_kl, f"in (0, {MOST}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Remembers the entropies that the note's rule looks back on, where it is in use."""

    ROLE: ClassVar[Role] = Role.EARLY
    SIGNALS: ClassVar[tuple[str, ...]] = ("ess", "mismatch_kl")

    entropies: tuple[float, ...] = ()

    def update(self, settings: LimitsSettings, reading: Reading) -> tuple[Limits, Finding]:
        """See the module."""
        ess, kl = reading.median("ess"), reading.median("mismatch_kl")
        found: dict[str, tuple[float, float, bool]] = {}
        if ess is not None and isfinite(ess):
            found["ess"] = ess, settings.ess, ess < settings.ess
        if kl is not None and isfinite(kl):
            found["mismatch_kl"] = kl, settings.mismatch_kl, kl > settings.mismatch_kl
        after, broken = self, reading.broken(ess, kl)
        if settings.rules == "note":
            after = self._with(reading.value("entropy"))
            found |= self._note(reading)
            broken |= reading.broken(*map(reading.value, ("asymmetry", "garbage_fraction", "entropy")))
        if broken or not found:
            state = State.INCONCLUSIVE if broken else reading.missing("mismatch_kl")
            return after, Finding(state=state, message="none of the limited signals, or not finite")
        beyond = {name: (value, limit) for name, (value, limit, is_beyond) in found.items() if is_beyond}
        told = [f"{name} {value:.3g} (limit {limit:.3g})" for name, (value, limit) in (beyond or _pairs(found)).items()]
        evidence = {name: value for name, (value, _, _) in found.items()}
        return after, Finding(
            state=State.WARN if beyond else State.OK,
            score=float(len(beyond)),
            evidence=evidence | {f"{name}_limit": limit for name, (_, limit, _) in found.items()},
            message=("beyond fixed limits: " if beyond else "within fixed limits: ") + ", ".join(told),
        )

    def _with(self, entropy: float | None) -> Limits:
        if entropy is None or not isfinite(entropy):
            return self
        return Limits(entropies=(*self.entropies, entropy)[-NOTE_WINDOW:])

    def _note(self, reading: Reading) -> dict[str, tuple[float, float, bool]]:
        found = {}
        asymmetry, garbage = reading.value("asymmetry"), reading.value("garbage_fraction")
        entropy = reading.value("entropy")
        if asymmetry is not None and isfinite(asymmetry):
            found["asymmetry"] = abs(asymmetry), NOTE_ASYMMETRY, abs(asymmetry) > NOTE_ASYMMETRY
        if garbage is not None and isfinite(garbage):
            found["garbage_fraction"] = garbage, NOTE_GARBAGE, garbage > NOTE_GARBAGE
        if entropy is not None and isfinite(entropy) and len(self.entropies) == NOTE_WINDOW:
            limit = fmean(self.entropies) + 3 * stdev(self.entropies)
            found["entropy"] = entropy, limit, entropy > limit
        return found


def _pairs(found: dict[str, tuple[float, float, bool]]) -> dict[str, tuple[float, float]]:
    return {name: (value, limit) for name, (value, limit, _) in found.items()}
