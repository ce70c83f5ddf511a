"""Where a signal would have to be for a detector to alarm, in the signal's own unit: lines for a chart.

Only of rules that come down to such a number now. What sums up distances, or looks at two steps, has none; what else a
rule needs before it alarms is in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from trimtab.agent.baselines import Baseline
from trimtab.agent.config import AgentConfig
from trimtab.agent.detectors.drift import CHANNELS
from trimtab.agent.reading import share_of
from trimtab.agent.regime import CONDITIONED
from trimtab.agent.run_state import RunState
from trimtab.agent.tracks import Track

Side = Literal["above", "below"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """One line in the chart of a signal."""

    signal: str
    detector: str
    statistic: Literal["mean", "median"]
    """Of the signal's latest window: what is compared."""
    side: Side
    """On which side of the value it alarms."""
    value: float
    pass_index: int | None = None
    """The pass over a buffer that it holds for; None for all."""
    rule: str = ""
    """Which of the detector's rules, where several have a line in one chart."""
    needs: str = ""
    """What else has to be so; empty where it alarms by itself."""


def thresholds(config: AgentConfig, state: RunState) -> tuple[Threshold, ...]:
    """Those that there are after the newest step, in the order of detectors."""
    found = (
        *_fixed(config),
        *_reward(config, state),
        *_entropy(config, state),
        *_entropy_trend(state),
        *_drift(config, state),
    )
    return tuple(threshold for threshold in found if isfinite(threshold.value))


def baselines(name: str, track: Track) -> list[tuple[int | None, Baseline]]:
    """The baselines of a signal, with the pass that each is of; None where it is of every pass."""
    if name not in CONDITIONED:
        return [(None, track.baseline)]
    return list(enumerate((track.baseline, *track.later)))


def _fixed(config: AgentConfig) -> Iterator[Threshold]:
    detectors = config.detectors
    yield Threshold(
        signal="mismatch_std",
        detector="mismatch",
        statistic="mean",
        side="above",
        value=detectors.mismatch.std_limit,
        needs="clip_fraction_positive above its own",
    )
    yield Threshold(
        signal="clip_fraction_positive",
        detector="mismatch",
        statistic="mean",
        side="above",
        value=detectors.mismatch.clip_limit,
        needs="mismatch_std above its own",
    )
    yield Threshold(
        signal="asymmetry_gap",
        detector="asymmetry",
        statistic="mean",
        side="below",
        value=-detectors.asymmetry.gap_limit,
        needs="clip_fraction_positive above its own, or escape_excess where the clip bounds are moved",
    )
    yield Threshold(
        signal="escape_excess",
        detector="asymmetry",
        statistic="mean",
        side="above",
        value=detectors.asymmetry.escape_limit,
        needs="asymmetry_gap below its own, and clip bounds that are moved",
    )
    garbage, retained, limits = detectors.garbage.limit, detectors.retained.limit, detectors.limits
    yield Threshold(signal="garbage_fraction", detector="garbage", statistic="median", side="above", value=garbage)
    yield Threshold(signal="retained_fraction", detector="retained", statistic="mean", side="below", value=retained)
    yield Threshold(signal="ess", detector="limits", statistic="median", side="below", value=limits.ess)
    yield Threshold(signal="mismatch_kl", detector="limits", statistic="median", side="above", value=limits.mismatch_kl)


def _reward(config: AgentConfig, state: RunState) -> Iterator[Threshold]:
    settings, memory, track = config.detectors.reward, state.detectors.reward, state.tracks.get("reward_mean")
    if track is None:
        return
    if track.peak is not None:
        yield Threshold(
            signal="reward_mean",
            detector="reward",
            statistic="mean",
            side="below",
            value=track.peak - memory.collapse(settings, track.peak),
            rule="collapse",
        )
    best = track.baseline.highest
    if best is not None:
        yield Threshold(
            signal="reward_mean",
            detector="reward",
            statistic="mean",
            side="below",
            value=best.location - memory.decline(settings, best.location),
            rule="decline",
            needs="that it lasts",
        )


def _entropy(config: AgentConfig, state: RunState) -> Iterator[Threshold]:
    settings, memory, track = config.detectors.entropy, state.detectors.entropy, state.tracks.get("entropy")
    reward = state.tracks.get("reward_mean")
    if track is None or reward is None or reward.peak is None:
        return
    if track.baseline.lowest is not None:
        floor = share_of(reward.peak, settings.reward_limit)
        yield Threshold(
            signal="entropy",
            detector="entropy",
            statistic="median",
            side="above",
            value=settings.rise * track.baseline.lowest.location,
            rule="rise",
            needs=f"that it lasts, and a mean reward below {floor:.3g}",
        )
    if memory.entropy is not None and memory.entropy >= settings.floor:
        value = settings.drop_limit * memory.entropy
        yield Threshold(signal="entropy", detector="entropy", statistic="mean", side="below", value=value, rule="drop")


def _entropy_trend(state: RunState) -> Iterator[Threshold]:
    verdict = state.verdicts.get("entropy_trend")
    if verdict is None or "entropy_before" not in verdict.evidence:
        return
    before = verdict.evidence["entropy_before"]
    limits: dict[Side, float] = {"above": verdict.evidence["rise_limit"], "below": verdict.evidence["fall_limit"]}
    for side, limit in limits.items():
        yield Threshold(
            signal="entropy",
            detector="entropy_trend",
            statistic="median",
            side=side,
            value=before + limit,
            needs="a reward that has not risen with it",
        )


def _drift(config: AgentConfig, state: RunState) -> Iterator[Threshold]:
    settings = config.detectors.drift
    for channel in CHANNELS.values():
        track = state.tracks.get(channel.signal)
        for pass_index, baseline in () if track is None else baselines(channel.signal, track):
            anchor = None if baseline.anchor is None else channel.size(baseline.anchor.location)
            if anchor is None or anchor <= 0:
                continue
            more: Side = "below" if channel.rest else "above"  # of what lacks to 1, more is less of the signal
            less: Side = "above" if channel.rest else "below"
            sizes = {more: max(anchor * getattr(settings, channel.up), channel.least)}
            if channel.down is not None:
                sizes[less] = anchor / getattr(settings, channel.down)
            for side, size in sizes.items():
                yield Threshold(
                    signal=channel.signal,
                    detector="drift",
                    statistic="median",
                    side=side,
                    value=channel.size(size),
                    pass_index=pass_index,
                    needs="that it lasts",
                )
