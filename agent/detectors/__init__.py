"""Every detector, by name. To add one: its file, then its settings and its memory here."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from trimtab.agent.detector import Detector
from trimtab.agent.detectors.mismatch import Mismatch, MismatchSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSettings:
    """Settings of each detector."""

    mismatch: MismatchSettings = field(default_factory=MismatchSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detectors:
    """Memory of each detector in one attempt of a run."""

    mismatch: Mismatch = field(default_factory=Mismatch)


DETECTORS: dict[str, Detector] = {each.name: getattr(Detectors(), each.name) for each in fields(Detectors)}
"""Every detector before its first step, by name."""
