"""What every detector is."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, Self

from trimtab.agent.reading import Reading
from trimtab.agent.state import Verdict


class Detector(Protocol):
    """A frozen value that remembers what its statistic needs, and judges one step at a time.

    Beside it in the same file stands its settings, a frozen dataclass with good defaults. It never reads a clock,
    another detector, or anything that is not in the reading.
    """

    SIGNALS: ClassVar[tuple[str, ...]]
    """Signals whose baselines are frozen while an incident of this detector is open."""

    def update(self, settings: Any, reading: Reading) -> tuple[Self, Verdict]:
        """The detector after the step, and its verdict, which names it by its key in `DETECTORS`."""
        ...
