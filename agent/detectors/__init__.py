"""Every detector, by name. To add one: its file, and one line for its settings and one for its memory here."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from trimtab.agent.detector import Detector
from trimtab.agent.detectors.asymmetry import Asymmetry, AsymmetrySettings
from trimtab.agent.detectors.entropy import Entropy, EntropySettings
from trimtab.agent.detectors.garbage import Garbage, GarbageSettings
from trimtab.agent.detectors.mismatch import Mismatch, MismatchSettings
from trimtab.agent.detectors.nonfinite import NonFiniteSettings, NonFiniteValues
from trimtab.agent.detectors.reward import Reward, RewardSettings
from trimtab.agent.detectors.tokens import Tokens, TokensSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSettings:
    """Settings of each detector."""

    nonfinite: NonFiniteSettings = field(default_factory=NonFiniteSettings)
    tokens: TokensSettings = field(default_factory=TokensSettings)
    mismatch: MismatchSettings = field(default_factory=MismatchSettings)
    asymmetry: AsymmetrySettings = field(default_factory=AsymmetrySettings)
    entropy: EntropySettings = field(default_factory=EntropySettings)
    garbage: GarbageSettings = field(default_factory=GarbageSettings)
    reward: RewardSettings = field(default_factory=RewardSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detectors:
    """Memory of each detector in one attempt of a run."""

    nonfinite: NonFiniteValues = field(default_factory=NonFiniteValues)
    tokens: Tokens = field(default_factory=Tokens)
    mismatch: Mismatch = field(default_factory=Mismatch)
    asymmetry: Asymmetry = field(default_factory=Asymmetry)
    entropy: Entropy = field(default_factory=Entropy)
    garbage: Garbage = field(default_factory=Garbage)
    reward: Reward = field(default_factory=Reward)


DETECTORS: dict[str, Detector] = {each.name: getattr(Detectors(), each.name) for each in fields(Detectors)}
"""Every detector before its first step, by name."""
