"""A signal that no other detector follows leaves its anchor for good.

Each channel has a size y > 0; m is the median of its last window, and a, s location and scale of its baseline's
anchor. In logarithms, since these signals vary by factors,

    z = ln(m / a) / max(s / a, 0.02)        up   <- clip(up   + min(z, 8) - 1, 0, 40)
                                            down <- clip(down - max(z, -8) - 1, 0, 40)

which is `trimtab.agent.cusum` with k = 1 and h = 20. WARN when a sum exceeds h and m / a is beyond the channel's
factor. The sum says that it lasts, the factor that it matters: a spread whose scale wanders by 15 % fools a CUSUM
against an anchor of 30 steps, and is never twice its anchor. The median passes over two wild batches in five.

| channel | factor | and |
|---|---|---|
| mismatch spread | up 2.5 | at least 0.05 nats |
| mismatch k3 | up 6 | at least 0.01 nats |
| 1 - effective sample size | up 6 | at least 0.1 |
| gradient norm | up 6, down 4 | down: no gain of reward since the anchor |
| mean length | up 1.6, down 0.5 | |

A gradient shrinks as the reward rises, since more groups are all right; without that it is a sign (0.07 to 0.02 ahead
of one reported collapse), and so is length (1000 to 3000 tokens 200 steps ahead of another). Baselines of all but the
length begin anew with each regime and action (`trimtab.agent.regime`).

Expected false alarms: below one in 100,000 steps for spreads that wander by 15 %.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite, log
from typing import ClassVar

from trimtab.agent.checks import MOST, require
from trimtab.agent.cusum import Cusum, CusumSettings
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.state import Finding, State
from trimtab.agent.values import quick

MIN_SCALE = 0.02
"""Smallest scale, as a share of the anchor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSettings:
    """Sums and factors."""

    cusum: CusumSettings = field(default_factory=CusumSettings)
    spread: float = 2.5
    """Factor on the mismatch spread."""
    divergence: float = 6.0
    """Factor on the k3 divergence, and on what is missing of the effective sample size."""
    gradient_up: float = 6.0
    gradient_down: float = 4.0
    """Factors on the gradient norm, up and down."""
    length_up: float = 1.6
    length_down: float = 2.0
    """Factors on the mean length, up and down."""

    def __post_init__(self) -> None:
        self.cusum.check("detectors.drift.cusum")
        for name in ("spread", "divergence", "gradient_up", "gradient_down", "length_up", "length_down"):
            value = getattr(self, name)
            require(1 < value <= MOST, f"detectors.drift.{name}", value, f"in (1, {MOST}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One signal that is followed."""

    signal: str
    up: str
    """Setting of the factor upward."""
    down: str | None = None
    """Setting of the factor downward; None where that is no sign."""
    least: float = 0.0
    """Size below which it does not matter."""
    rest: bool = False
    """Its size is what it lacks of 1."""

    def size(self, value: float) -> float:
        """Of a value."""
        return 1.0 - value if self.rest else value


CHANNELS = {
    "spread": Channel(signal="mismatch_std", up="spread", least=0.05),
    "divergence": Channel(signal="mismatch_kl", up="divergence", least=0.01),
    "lost": Channel(signal="ess", up="divergence", least=0.1, rest=True),
    "gradient": Channel(signal="grad_norm", up="gradient_up", down="gradient_down"),
    "length": Channel(signal="length_mean", up="length_up", down="length_down"),
}


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Remembers the sums of each channel; forgets them with its baseline."""

    ROLE: ClassVar[Role] = Role.EARLY
    SIGNALS: ClassVar[tuple[str, ...]] = tuple(channel.signal for channel in CHANNELS.values())

    spread: Cusum = field(default_factory=Cusum)
    divergence: Cusum = field(default_factory=Cusum)
    lost: Cusum = field(default_factory=Cusum)
    gradient: Cusum = field(default_factory=Cusum)
    length: Cusum = field(default_factory=Cusum)

    def update(self, settings: DriftSettings, reading: Reading) -> tuple[Drift, Finding]:
        """See the module."""
        sums, scores = {}, {}
        evidence: dict[str, float] = {}
        medians = {channel.signal: reading.median(channel.signal) for channel in CHANNELS.values()}
        for name, channel in CHANNELS.items():
            found = _place(channel, medians[channel.signal], reading)
            if found is None:
                sums[name] = getattr(self, name) if reading.is_anchored(channel.signal) else Cusum()
                continue
            size, anchor, moved, z = found
            sums[name] = getattr(self, name).updated(z, settings.cusum)
            scores[name] = _score(channel, sums[name], size, moved, settings, reading)
            evidence[channel.signal], evidence[f"{channel.signal}_anchor"] = size, anchor
        after = Drift(**sums)
        if not scores:
            return after, Finding(state=_missing(reading), message="no baseline yet of any signal that could drift")
        worst = max(scores, key=lambda each: scores[each])
        if scores[worst] <= 1 and reading.broken(*medians.values(), reading.mean("reward_mean")):
            return after, Finding(state=State.INCONCLUSIVE, message="a signal that could drift, or pay, is not finite")
        signal = CHANNELS[worst].signal
        what = f"1 - {signal}" if CHANNELS[worst].rest else signal
        return after, Finding(
            state=State.WARN if scores[worst] > 1 else State.OK,
            score=scores[worst],
            evidence=evidence,
            message=f"{what} is at {evidence[signal]:.4g}, anchored at {evidence[f'{signal}_anchor']:.4g}",
        )


def _place(channel: Channel, middle: float | None, reading: Reading) -> tuple[float, float, float, float] | None:
    """Median size of the last values, size at the anchor, logarithm of their ratio, and that in sd; None where there is
    none."""
    level = reading.level(channel.signal, "anchor")
    if middle is None or level is None or not isfinite(middle):
        return None
    size, anchor = channel.size(middle), channel.size(level.location)
    if size <= 0 or anchor <= 0:
        return None
    moved = log(size / anchor)
    return size, anchor, moved, moved / max(level.scale / anchor, MIN_SCALE)


def _score(
    channel: Channel, sums: Cusum, size: float, moved: float, settings: DriftSettings, reading: Reading
) -> float:
    """Above 1 where the channel alarms."""
    h = settings.cusum.h
    score = min(sums.up / h, moved / log(getattr(settings, channel.up))) if size >= channel.least else 0.0
    if channel.down is not None and not (channel.signal == "grad_norm" and _gained(reading)):
        score = max(score, min(sums.down / h, -moved / log(getattr(settings, channel.down))))
    return max(score, 0.0)


def _gained(reading: Reading) -> bool:
    """The reward is above its anchor, by one sd, or is not known."""
    reward, level = reading.mean("reward_mean"), reading.level("reward_mean", "anchor")
    return reward is None or level is None or not reward <= level.location + level.scale


def _missing(reading: Reading) -> State:
    seen = any(reading.missing(channel.signal) is State.INCONCLUSIVE for channel in CHANNELS.values())
    return State.INCONCLUSIVE if seen else State.NOT_OBSERVED
