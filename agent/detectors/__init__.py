"""Every detector, by name. To add one: its file, and one line for its settings and one for its memory here."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from trimtab.agent.detector import Detector
from trimtab.agent.detectors.asymmetry import Asymmetry, AsymmetrySettings
from trimtab.agent.detectors.clipping import Clipping, ClippingSettings
from trimtab.agent.detectors.drift import Drift, DriftSettings
from trimtab.agent.detectors.entropy import Entropy, EntropySettings
from trimtab.agent.detectors.entropy_trend import EntropyTrend, EntropyTrendSettings
from trimtab.agent.detectors.garbage import Garbage, GarbageSettings
from trimtab.agent.detectors.invariant import Invariant, InvariantSettings
from trimtab.agent.detectors.jump import Jump, JumpSettings
from trimtab.agent.detectors.learning import Learning, LearningSettings
from trimtab.agent.detectors.limits import Limits, LimitsSettings
from trimtab.agent.detectors.mismatch import Mismatch, MismatchSettings
from trimtab.agent.detectors.nonfinite import NonFiniteSettings, NonFiniteValues
from trimtab.agent.detectors.overreach import Overreach, OverreachSettings
from trimtab.agent.detectors.pipeline import Pipeline, PipelineSettings
from trimtab.agent.detectors.resume import Resume, ResumeSettings
from trimtab.agent.detectors.retained import Retained, RetainedSettings
from trimtab.agent.detectors.reward import Reward, RewardSettings
from trimtab.agent.detectors.shift import Shift, ShiftSettings
from trimtab.agent.detectors.slope import Slope, SlopeSettings
from trimtab.agent.detectors.tokens import Tokens, TokensSettings
from trimtab.agent.detectors.vanished import Vanished, VanishedSettings
from trimtab.agent.values import quick


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSettings:
    """Settings of each detector."""

    nonfinite: NonFiniteSettings = field(default_factory=NonFiniteSettings)
    tokens: TokensSettings = field(default_factory=TokensSettings)
    vanished: VanishedSettings = field(default_factory=VanishedSettings)
    pipeline: PipelineSettings = field(default_factory=PipelineSettings)
    mismatch: MismatchSettings = field(default_factory=MismatchSettings)
    asymmetry: AsymmetrySettings = field(default_factory=AsymmetrySettings)
    clipping: ClippingSettings = field(default_factory=ClippingSettings)
    overreach: OverreachSettings = field(default_factory=OverreachSettings)
    entropy: EntropySettings = field(default_factory=EntropySettings)
    garbage: GarbageSettings = field(default_factory=GarbageSettings)
    reward: RewardSettings = field(default_factory=RewardSettings)
    limits: LimitsSettings = field(default_factory=LimitsSettings)
    jump: JumpSettings = field(default_factory=JumpSettings)
    slope: SlopeSettings = field(default_factory=SlopeSettings)
    drift: DriftSettings = field(default_factory=DriftSettings)
    shift: ShiftSettings = field(default_factory=ShiftSettings)
    entropy_trend: EntropyTrendSettings = field(default_factory=EntropyTrendSettings)
    retained: RetainedSettings = field(default_factory=RetainedSettings)
    learning: LearningSettings = field(default_factory=LearningSettings)
    invariant: InvariantSettings = field(default_factory=InvariantSettings)
    resume: ResumeSettings = field(default_factory=ResumeSettings)


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Detectors:
    """Memory of each detector in one attempt of a run."""

    nonfinite: NonFiniteValues = field(default_factory=NonFiniteValues)
    tokens: Tokens = field(default_factory=Tokens)
    vanished: Vanished = field(default_factory=Vanished)
    pipeline: Pipeline = field(default_factory=Pipeline)
    mismatch: Mismatch = field(default_factory=Mismatch)
    asymmetry: Asymmetry = field(default_factory=Asymmetry)
    clipping: Clipping = field(default_factory=Clipping)
    overreach: Overreach = field(default_factory=Overreach)
    entropy: Entropy = field(default_factory=Entropy)
    garbage: Garbage = field(default_factory=Garbage)
    reward: Reward = field(default_factory=Reward)
    limits: Limits = field(default_factory=Limits)
    jump: Jump = field(default_factory=Jump)
    slope: Slope = field(default_factory=Slope)
    drift: Drift = field(default_factory=Drift)
    shift: Shift = field(default_factory=Shift)
    entropy_trend: EntropyTrend = field(default_factory=EntropyTrend)
    retained: Retained = field(default_factory=Retained)
    learning: Learning = field(default_factory=Learning)
    invariant: Invariant = field(default_factory=Invariant)
    resume: Resume = field(default_factory=Resume)


DETECTORS: dict[str, Detector] = {each.name: getattr(Detectors(), each.name) for each in fields(Detectors)}
"""Every detector before its first step, by name."""
