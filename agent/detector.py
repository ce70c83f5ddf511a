"""What every detector is."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, ClassVar, Protocol, Self

from trimtab.agent.reading import Reading
from trimtab.agent.state import Finding


class Role(Enum):
    """What an incident of a detector means to the others, and to the policy."""

    INPUT = auto()
    """The inputs are broken. While it is firing and CRITICAL it explains every other incident, and nothing is
    remedied."""
    SIGNATURE = auto()
    """The signature of low-precision mismatch, which the remedies are for; the policy answers the first in order."""
    EARLY = auto()
    """A statistic that moves before harm does. It is told, and asks for no remedy by itself, but for gradients that
    spike (`trimtab.agent.wrong`)."""
    HARM = auto()
    """What a failure does to the run. It shows whether the remedy in effect helps, and asks for one where the reward
    falls in a run that is off-policy (`trimtab.agent.wrong`)."""


class Detector(Protocol):
    """A frozen value that remembers what its statistic needs, and judges one step at a time.

    Beside it in the same file stands its settings, a frozen dataclass with good defaults. It never reads a clock,
    another detector, or anything that is not in the reading.
    """

    ROLE: ClassVar[Role]
    SIGNALS: ClassVar[tuple[str, ...]]
    """Signals whose baselines are learnt for this detector, and frozen while an incident of it is open."""

    def update(self, settings: Any, reading: Reading) -> tuple[Self, Finding]:
        """The detector after the step, and what it makes of the step."""
        ...
