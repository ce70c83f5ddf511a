"""Signals of what the run does: entropy, reward, lengths, gradients, and whether its numbers are numbers."""

from __future__ import annotations

import math

from trimtab.agent.signals.step import Signal, Step, told
from trimtab.hooks.records import SignTotals, StepSummary

DEPENDENCY_ORDER = (
    "rollout_logprobs",
    "old_logprobs",
    "train_logprobs",
    "entropy",
    "advantages",
    "loss",
    "grad_norm",
    "update_norm",
)
"""Tensors and scalars in the order in which a fault travels through a step: the earliest is the root."""
NEVER_INFINITE = ("loss", "grad_norm", "update_norm")
"""Scalars that ruin the weights when they are not finite."""


def _entropy(summary: StepSummary, *parts: SignTotals) -> float | None:
    tokens = sum(part.entropy_tokens for part in parts)
    if tokens:
        return sum(part.entropy for part in parts) / tokens
    broken = summary.nonfinite.get("entropy")
    return math.nan if broken is not None and broken.live else None


@Signal
def entropy(step: Step) -> float | None:
    """Mean entropy of the trainer's distribution over all live tokens, nats; NaN when every value was non-finite.

    Where no token's was observed it is the scalar of that name.
    """
    summary = step.summary
    measured = _entropy(summary, summary.negative, summary.zero, summary.positive)
    return summary.scalars.get("entropy") if measured is None else measured


@Signal
def entropy_negative(step: Step) -> float | None:
    """Mean entropy over negative-advantage tokens, nats."""
    return _entropy(step.summary, step.summary.negative)


@Signal
def entropy_positive(step: Step) -> float | None:
    """Mean entropy over positive-advantage tokens, nats."""
    return _entropy(step.summary, step.summary.positive)


@Signal
def nonfinite(step: Step) -> float | None:
    """Non-finite values under the loss mask, plus a non-finite loss, gradient norm or update norm; of a log the latter
    alone, and not observed where it has none of them."""
    summary = step.summary
    if summary.log is not None and not any(name in summary.scalars for name in NEVER_INFINITE):
        return None
    scalars = sum(not math.isfinite(summary.scalars.get(name, 0.0)) for name in NEVER_INFINITE)
    return float(sum(counts.live for counts in summary.nonfinite.values()) + scalars)


@Signal
def tokens(step: Step) -> float | None:
    """Tokens under the loss mask; a log does not say."""
    return None if step.summary.log is not None else float(step.summary.tokens)


@Signal
def advantage_fraction(step: Step) -> float | None:
    """Share of the tokens whose advantage is not zero: what the step learns from."""
    summary = step.summary
    return (summary.negative.tokens + summary.positive.tokens) / summary.tokens if summary.tokens else None


@Signal
def staleness(step: Step) -> float | None:
    """Mean age of the sampled tokens, in weight versions."""
    return step.summary.staleness


SCALARS = {
    "garbage_fraction": "Share of responses that are not in the language of the task.",
    "reward_mean": "Mean reward of the step's responses.",
    "grad_norm": "Norm of the gradient before clipping.",
    "update_norm": "Norm of the step that the optimizer took.",
    "length_mean": "Mean response length, tokens.",
    "length_p95": "Length that 5 % of the responses exceed, tokens.",
    "truncated_fraction": "Share of responses cut off at the longest length.",
    "zero_variance_fraction": "Share of groups in which every reward is the same.",
    "head_tv": "Total variation distance of sampler and trainer over the sampler's head and what is left, in [0, 1].",
    "token_mult_prob_error": "Mean over tokens of exp(|trainer log-prob - sampler log-prob|).",
}
"""Scalars that are signals as they come."""


def _scalar(name: str, what: str) -> Signal:
    def read(step: Step) -> float | None:
        return step.summary.scalars.get(name)

    return told(read, what)


def scalars() -> dict[str, Signal]:
    """The signals of `SCALARS`."""
    return {name: _scalar(name, what) for name, what in SCALARS.items()}
