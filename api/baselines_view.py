"""What the agent takes for usual in a job, and where its detectors would alarm."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pydantic import Field

from trimtab.agent.advance import JUDGED
from trimtab.agent.baselines import Baseline, Level
from trimtab.agent.config import AgentConfig
from trimtab.agent.detector import Role
from trimtab.agent.detectors import DETECTORS
from trimtab.agent.incidents import fingerprint, is_open
from trimtab.agent.run_state import RunState
from trimtab.agent.state import State
from trimtab.agent.thresholds import Threshold, baselines, thresholds
from trimtab.api.views import View


class BaselineView(View):
    """What is usual of a signal, on one pass over a buffer."""

    pass_index: int | None = Field(description="Null where it is of every pass.")
    level: float | None = Field(description="Where the signal is on average; null while it is learnt.")
    spread: float | None = Field(description="Robust standard deviation about it.")
    anchor: float | None = Field(description="Where it was when it was learnt; it does not follow the signal.")
    anchor_spread: float | None
    highest: float | None = Field(description="The level when it was highest.")
    lowest: float | None = Field(description="The level when it was lowest.")
    warming: int = Field(description="Values until there is a level; 0 once there is.")
    settling: int = Field(description="Values until the anchor stands still; 0 once it does.")
    nonfinite: int = Field(description="Values that were not finite, and so are not in it.")


class SignalView(View):
    """A signal that was observed, and that detectors ask for."""

    name: str
    detectors: list[str] = Field(description="Those for which its baseline is learnt.")
    frozen_by: list[str] = Field(
        description="Detectors whose open incidents keep a baseline that is known from following the signal."
    )
    value: float = Field(description="The latest.")
    age: int = Field(description="Steps since then; 0 when the newest step has one.")
    mean: float | None = Field(description="Of the latest full window; null while it fills.")
    baselines: list[BaselineView]
    thresholds: list[Threshold]


class DetectorView(View):
    """A detector, its settings, and what it judged the newest step by."""

    name: str
    role: str = Field(description="`input`, `signature`, `early` or `harm`.", examples=["harm"])
    signals: list[str] = Field(description="Signals whose baselines are learnt for it.")
    settings: dict[str, Any]
    state: State
    score: float = Field(description="How far past its limit: 1 is at the limit.")
    evidence: dict[str, float] = Field(description="The numbers that it judged, and the limits that it judged by.")


class BaselinesView(View):
    """Everything that a verdict of the newest step rests on."""

    job: str
    attempt: int | None = Field(description="Null before the first summary.")
    step: int | None
    window: int = Field(description="Steps of a window, before it is rounded up to whole cycles of passes.")
    regime_entropy: float | None = Field(description="Mean entropy when the ratios' baselines were begun, nats.")
    signals: list[SignalView]
    detectors: list[DetectorView]


def baselines_view(config: AgentConfig, state: RunState) -> BaselinesView:
    """The baselines of a job with these settings, in this state."""
    judged = state.last_step >= 0
    limits = thresholds(config, state)
    asked = {*JUDGED, *(limit.signal for limit in limits)}
    shown = sorted(name for name, track in state.tracks.items() if name in asked and track.recent)
    return BaselinesView(
        job=state.job,
        attempt=state.attempt if judged else None,
        step=state.last_step if judged else None,
        window=config.window,
        regime_entropy=state.regime_entropy,
        signals=[_signal(name, config, state, limits) for name in shown],
        detectors=[_detector(name, config, state) for name in DETECTORS],
    )


def _signal(name: str, config: AgentConfig, state: RunState, limits: tuple[Threshold, ...]) -> SignalView:
    track = state.tracks[name]
    asking = [each for each, detector in DETECTORS.items() if name in detector.SIGNALS]
    return SignalView(
        name=name,
        detectors=asking,
        frozen_by=[each for each in asking if is_open(state.incidents.get(fingerprint(state.job, each)))],
        value=track.recent[-1],
        age=track.age,
        mean=track.mean(config.window),
        baselines=[_baseline(of, baseline, config) for of, baseline in baselines(name, track)] if asking else [],
        thresholds=[limit for limit in limits if limit.signal == name],
    )


def _baseline(pass_index: int | None, baseline: Baseline, config: AgentConfig) -> BaselineView:
    def location(level: Level | None) -> float | None:
        return None if level is None else level.location

    return BaselineView(
        pass_index=pass_index,
        level=location(baseline.average),
        spread=None if baseline.average is None else baseline.average.scale,
        anchor=location(baseline.anchor),
        anchor_spread=None if baseline.anchor is None else baseline.anchor.scale,
        highest=location(baseline.highest),
        lowest=location(baseline.lowest),
        warming=config.baseline.warmup - len(baseline.early) if baseline.average is None else 0,
        settling=baseline.unsettled,
        nonfinite=baseline.nonfinite,
    )


def _detector(name: str, config: AgentConfig, state: RunState) -> DetectorView:
    detector, verdict = DETECTORS[name], state.verdicts.get(name)
    role: Role = detector.ROLE
    return DetectorView(
        name=name,
        role=role.name.lower(),
        signals=list(detector.SIGNALS),
        settings=asdict(getattr(config.detectors, name)),
        state=State.NOT_OBSERVED if verdict is None else verdict.state,
        score=0.0 if verdict is None else verdict.score,
        evidence={} if verdict is None else verdict.evidence,
    )
