"""What a drawn run is made of: its set-up, and what holds in one of its steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trimtab.agent.checks import require


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is sampled a step: `prompts` x `rollouts` responses of at most `length` tokens."""

    prompts: int = 8
    rollouts: int = 8
    length: int = 512

    def __post_init__(self) -> None:
        for name, least in (("prompts", 1), ("rollouts", 2), ("length", 8)):
            require(getattr(self, name) >= least, f"size.{name}", getattr(self, name), f"at least {least}")


SMALL = Size(prompts=8, rollouts=8, length=64)
"""An eighth of the tokens, for tests: 2.6k of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A healthy run, before anything happens to it."""

    entropy: float = 0.35
    """Mean entropy of a token, nats: 0.35 is typical of tuned models, 2 of untuned ones."""
    success: float = 0.5
    """Mean share of right answers; each prompt's own is drawn from Beta(4 p, 4 (1 - p))."""
    wander: float = 0.15
    """Standard deviation of the logarithm of the noise's scale, which both advantage signs have in common."""
    passes: int = 1
    """Updates on the same rollouts (num_iterations); the ratios widen from pass to pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What one step is drawn from, after whatever is happening to the run."""

    step: int
    attempt: int = 0
    entropy: float
    success: float
    scale: float = 1.0
    """Factor on every log-ratio."""
    heavy: float = 0.03
    """Share of the tokens whose log-ratio is drawn from the wide distribution."""
    tail: float = 0.0
    """Added to the lowest 5 % of the log-ratios of negative-advantage tokens, nats."""
    negative: float = 0.0
    """Added to all log-ratios of negative-advantage tokens, nats."""
    positive: float = 0.0
    """The same of positive-advantage tokens."""
    length: float = 0.8
    """Mean length of a response, as a share of the longest possible."""
    longer: float = 0.0
    """By how much wrong answers are longer than right ones, in the same unit."""
    garbage: float = 0.003
    """Share of responses that are not in the language of the task."""
    gradient: float = 0.3
    """Median of the gradient norm."""
    poison: tuple[str, float] | None = None
    """Tensor, or scalar, that has one value which is not finite, and that value."""


Fault = Callable[[Conditions, int], Conditions]
"""Conditions that would hold, and the steps since the onset, from 0, to those that do."""
