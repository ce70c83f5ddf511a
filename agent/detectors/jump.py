"""A value is two decades off from one step to the next.

Judged at once, without baseline or patience, CRITICAL:

1. Mismatch: the k3 divergence is over 100 times, and sd(d) over 10 times, the largest of the last steps and of the
   highest average so far, and k3 is above 0.5 nats. Both, because a single batch of garbage with heavy tails drives k3
   up a hundredfold through a handful of tokens, and its spread six- to ninefold.
2. Gradient: its norm is over 100 times the largest of the last steps and of the highest average so far. Zeros, of
   batches in which no group has any variance, are no reference.
3. Loss: |loss| is over 100 times the largest so far, and above 1.

One value before is enough, so a jump in the second step of a run is seen. It goes on alarming while the value stays a
hundred times above what it jumped from; one jump is one incident.

Expected false alarms: none seen. The largest single-step spikes of healthy runs were sevenfold in sd(d), from 0.06 to
0.4, and tenfold in the gradient's norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

from trimtab.agent.checks import MOST, require
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.state import Finding, State
from trimtab.agent.values import quick


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpSettings:
    """What a jump is."""

    factor: float = 100.0
    """Over what was seen before; its root for the spread."""
    mismatch_floor: float = 0.5
    """k3 divergence below which there is none, nats."""
    loss_floor: float = 1.0
    """|loss| below which there is none."""

    def __post_init__(self) -> None:
        require(1 < self.factor <= MOST, "detectors.jump.factor", self.factor, f"in (1, {MOST}]")
        require(
            0 < self.mismatch_floor <= MOST, "detectors.jump.mismatch_floor", self.mismatch_floor, f"in (0, {MOST}]"
        )
        require(0 < self.loss_floor <= MOST, "detectors.jump.loss_floor", self.loss_floor, f"in (0, {MOST}]")


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """Remembers what was jumped from, while it lasts, and the largest loss."""

    ROLE: ClassVar[Role] = Role.EARLY
    SIGNALS: ClassVar[tuple[str, ...]] = ("mismatch_kl", "mismatch_std", "grad_norm")

    mismatch: float | None = None
    """k3 divergence before the jump; None where there is none."""
    gradient: float | None = None
    """Norm before the jump; None where there is none."""
    loss: float | None = None
    """Largest |loss| so far, jumps left out."""

    def update(self, settings: JumpSettings, reading: Reading) -> tuple[Jump, Finding]:
        """See the module."""
        mismatch, gradient = self._mismatch(settings, reading), self._gradient(settings, reading)
        loss = reading.summary.scalars.get("loss")
        size = None if loss is None else abs(loss)
        leapt, largest = None, self.loss
        if size is not None and isfinite(size):
            if self.loss is not None and size > max(settings.factor * self.loss, settings.loss_floor):
                leapt = self.loss
            else:
                largest = max(size, self.loss or 0.0)
        after = Jump(mismatch=mismatch, gradient=gradient, loss=largest)
        now = {"mismatch_kl": reading.value("mismatch_kl"), "grad_norm": reading.value("grad_norm"), "loss": size}
        seen = {name: value for name, value in now.items() if value is not None and isfinite(value)}
        if not seen:
            state = State.INCONCLUSIVE if any(v is not None for v in now.values()) else reading.missing("grad_norm")
            return after, Finding(state=state, message="no finite mismatch, gradient norm or loss")
        before = {"mismatch_kl": mismatch, "grad_norm": gradient, "loss": leapt}
        finding = _told(settings, {name: (before[name], value) for name, value in seen.items()})
        if not finding.state.alarming and reading.broken(*now.values(), reading.value("mismatch_std")):
            return after, Finding(state=State.INCONCLUSIVE, message="a mismatch, gradient norm or loss is not finite")
        return after, finding

    def _mismatch(self, settings: JumpSettings, reading: Reading) -> float | None:
        kl, std = reading.value("mismatch_kl"), reading.value("mismatch_std")
        if kl is None or std is None:
            return self.mismatch
        if self.mismatch is not None:
            return self.mismatch if kl > settings.factor * self.mismatch else None
        if not kl > settings.mismatch_floor:
            return None
        kl_before, std_before = _before(reading, "mismatch_kl"), _before(reading, "mismatch_std")
        if kl_before is None or std_before is None:
            return None
        leapt = kl > settings.factor * kl_before and std > settings.factor**0.5 * std_before
        return kl_before if leapt else None

    def _gradient(self, settings: JumpSettings, reading: Reading) -> float | None:
        norm = reading.value("grad_norm")
        before = self.gradient if self.gradient is not None else _before(reading, "grad_norm")
        if norm is None:
            return self.gradient
        return before if before is not None and norm > settings.factor * before else None


def _before(reading: Reading, name: str) -> float | None:
    """The largest of the window's earlier values and of the highest average; None where nothing positive was seen."""
    track = reading.tracks.get(name)
    earlier = () if track is None else track.recent[:-1]
    known = [value for value in earlier if isfinite(value) and value > 0]
    level = reading.level(name, "highest")
    if level is not None and level.location > 0:
        known.append(level.location)
    return max(known, default=None)


def _told(settings: JumpSettings, values: dict[str, tuple[float | None, float]]) -> Finding:
    jumps = {name: (before, now) for name, (before, now) in values.items() if before is not None}
    if not jumps:
        return Finding(state=State.OK, evidence={name: now for name, (_, now) in values.items()}, message="no jump")
    tiny = 1e-300
    return Finding(
        state=State.CRITICAL,
        score=max(now / max(settings.factor * before, tiny) for before, now in jumps.values()),
        evidence={name: now for name, (_, now) in jumps.items()}
        | {f"{name}_before": before for name, (before, _) in jumps.items()}
        | {"factor": settings.factor},
        message="; ".join(f"{name} jumped from {before:.3g} to {now:.3g}" for name, (before, now) in jumps.items()),
    )
