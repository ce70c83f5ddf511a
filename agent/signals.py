"""What is read from one step: one visible dict of pure functions `StepSummary -> float | None`.

None means not observed: the run does not report it, or too few tokens of one advantage sign are there to judge. NaN
and the infinities mean observed, and not finite. Log-ratios and entropies are in nats; fractions are of the tokens
named.

Signs are read apart because the harm has a sign: a negative-advantage token whose ratio falls below 1 - clip_low
escapes its penalty, while staleness and number formats displace both signs together. The *difference* of signs
cancels what is common (length, prompt mix, temperature); the difference to the BF16 twin also cancels what staleness
alone does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate

from trimtab.hooks.controls import ClipBounds
from trimtab.hooks.records import SignTotals, StepSummary
from trimtab.hooks.sketch import LOWER_EDGES, UPPER_EDGES, Sign, SignSketch

Signal = Callable[[StepSummary], float | None]

MIN_TOKENS = 100
"""Tokens of one sign below which it is not judged: its 5 % quantile would rest on under five of them."""
LARGEST = 1e100
"""Nothing that a run measures is larger, and below it no mean, difference or ratio to a scale loses its meaning to
overflow: what lies beyond is as good as infinite, and is judged so."""
DEPENDENCY_ORDER = (
    "rollout_logprobs",
    "old_logprobs",
    "train_logprobs",
    "entropy",
    "advantages",
    "loss",
    "grad_norm",
)
"""Tensors and scalars in the order in which a fault travels through a step: the earliest is the root."""


def quantile(tokens: SignSketch, q: float) -> float:
    """The log-ratio below which a share `q` of `tokens` lies, interpolated inside its bin; an overflow bin gives its
    finite edge.

    `SignSketch.quantile` gives the middle of the bin, which suits a reader of one step. A detector of small shifts
    needs what varies smoothly with the distribution: bins span 3 %, the sampling noise of a 5 % quantile of 16k
    tokens about 1 %.
    """
    target = q * tokens.n
    cumulative = list(accumulate(tokens.counts))
    place = next(i for i, total in enumerate(cumulative) if total >= target)
    lower, upper = float(LOWER_EDGES[tokens.bins[place]]), float(UPPER_EDGES[tokens.bins[place]])
    if math.isinf(lower):
        return upper
    if math.isinf(upper):
        return lower
    share = (target - (cumulative[place] - tokens.counts[place])) / tokens.counts[place]
    return lower + share * (upper - lower)


def _sign(summary: StepSummary, sketch: str, sign: Sign) -> SignSketch | None:
    """The tokens of one sign, if there are enough of them to judge."""
    found = summary.sketches.get(sketch)
    if found is None:
        return None
    tokens = found.sign(sign)
    return tokens if tokens.n >= MIN_TOKENS else None


def _pooled(summary: StepSummary, sketch: str, *names: str) -> tuple[float, ...] | None:
    """Means over all tokens of the sums called `names`."""
    found = summary.sketches.get(sketch)
    if found is None:
        return None
    n = sum(tokens.n for tokens in found.signs())
    if n < MIN_TOKENS:
        return None
    return tuple(sum(tokens.sum(name) for tokens in found.signs()) / n for name in names)


def _spread(summary: StepSummary, sketch: str) -> float | None:
    """Standard deviation of the log-ratio over all tokens."""
    means = _pooled(summary, sketch, "log_ratio", "log_ratio_sq")
    return None if means is None else math.sqrt(max(means[1] - means[0] ** 2, 0.0))


def mismatch_std(summary: StepSummary) -> float | None:
    """Standard deviation of trainer log-prob - sampler log-prob, nats."""
    return _spread(summary, "mismatch")


def mismatch_mean(summary: StepSummary) -> float | None:
    """Mean of trainer log-prob - sampler log-prob, nats: minus the k1 estimate of KL(sampler || trainer)."""
    means = _pooled(summary, "mismatch", "log_ratio")
    return None if means is None else means[0]


def mismatch_kl(summary: StepSummary) -> float | None:
    """The k3 estimate of KL(sampler || trainer), mean of r - 1 - log r with r = trainer / sampler, nats."""
    means = _pooled(summary, "mismatch", "k3")
    return None if means is None else means[0]


def ess(summary: StepSummary) -> float | None:
    """Effective share of the sample under raw weights r = trainer / sampler: mean(r)^2 / mean(r^2), in (0, 1]."""
    means = _pooled(summary, "mismatch", "ratio", "ratio_sq")
    return None if means is None else means[0] ** 2 / means[1]


def update_std(summary: StepSummary) -> float | None:
    """Standard deviation of the log-ratio that the loss clips, nats."""
    return _spread(summary, "update")


def bounds(summary: StepSummary) -> ClipBounds:
    """The log-space bounds that the step's loss clipped by."""
    return summary.clip_bounds or ClipBounds.nominal(summary.applied)


def clip_fraction_positive(summary: StepSummary) -> float | None:
    """Share of positive-advantage tokens above the upper clip bound in effect: they carry no gradient."""
    tokens = _sign(summary, "update", Sign.POSITIVE)
    return None if tokens is None else 1.0 - tokens.fraction_below(bounds(summary).high)


def clip_fraction_negative(summary: StepSummary) -> float | None:
    """Share of negative-advantage tokens below the lower clip bound in effect: they carry no gradient."""
    tokens = _sign(summary, "update", Sign.NEGATIVE)
    return None if tokens is None else tokens.fraction_below(bounds(summary).low)


def twin_clip_fraction_negative(summary: StepSummary) -> float | None:
    """Share of negative-advantage tokens that the BF16 twin would clip, under nominal bounds."""
    tokens = _sign(summary, "shadow", Sign.NEGATIVE)
    return None if tokens is None else tokens.fraction_below(ClipBounds.nominal(summary.applied).low)


def escape_excess(summary: StepSummary) -> float | None:
    """`clip_fraction_negative` minus that of the BF16 twin under nominal bounds: penalties that precision loses."""
    own, twin = clip_fraction_negative(summary), twin_clip_fraction_negative(summary)
    return None if own is None or twin is None else own - twin


def _quantile_signal(sign: Sign, q: float) -> Signal:
    def read(summary: StepSummary) -> float | None:
        tokens = _sign(summary, "update", sign)
        return None if tokens is None else quantile(tokens, q)

    read.__doc__ = f"The {q:.0%} quantile of the clipped log-ratio over {sign.value}-advantage tokens, nats."
    return read


def _asymmetry(summary: StepSummary, sketch: str, read: Callable[[SignSketch], float]) -> float | None:
    negative, positive = _sign(summary, sketch, Sign.NEGATIVE), _sign(summary, sketch, Sign.POSITIVE)
    return None if negative is None or positive is None else read(negative) - read(positive)


def _q05(tokens: SignSketch) -> float:
    return quantile(tokens, 0.05)


def asymmetry(summary: StepSummary) -> float | None:
    """q05(A < 0) - q05(A > 0) of the clipped log-ratio, nats: how much deeper the tail of punished tokens lies."""
    return _asymmetry(summary, "update", _q05)


def asymmetry_mean(summary: StepSummary) -> float | None:
    """mean(A < 0) - mean(A > 0) of the clipped log-ratio, nats: the same for the bulk of the tokens."""
    return _asymmetry(summary, "update", lambda tokens: tokens.sum("log_ratio") / tokens.n)


def twin_asymmetry(summary: StepSummary) -> float | None:
    """`asymmetry` of the BF16 twin at the same weights, nats: what staleness does."""
    return _asymmetry(summary, "shadow", _q05)


def asymmetry_gap(summary: StepSummary) -> float | None:
    """`asymmetry` minus that of the BF16 twin at the same weights, nats: what precision does, staleness taken away."""
    own, twin = asymmetry(summary), twin_asymmetry(summary)
    return None if own is None or twin is None else own - twin


def _entropy(summary: StepSummary, *parts: SignTotals) -> float | None:
    tokens = sum(part.entropy_tokens for part in parts)
    if tokens:
        return sum(part.entropy for part in parts) / tokens
    broken = summary.nonfinite.get("entropy")
    return math.nan if broken is not None and broken.live else None


def entropy(summary: StepSummary) -> float | None:
    """Mean entropy of the trainer's distribution over all live tokens, nats; NaN when every value was non-finite."""
    return _entropy(summary, summary.negative, summary.zero, summary.positive)


def entropy_negative(summary: StepSummary) -> float | None:
    """Mean entropy over negative-advantage tokens, nats."""
    return _entropy(summary, summary.negative)


def entropy_positive(summary: StepSummary) -> float | None:
    """Mean entropy over positive-advantage tokens, nats."""
    return _entropy(summary, summary.positive)


def nonfinite(summary: StepSummary) -> float | None:
    """Non-finite values under the loss mask, plus non-finite loss and gradient norm."""
    scalars = sum(not math.isfinite(summary.scalars.get(name, 0.0)) for name in ("loss", "grad_norm"))
    return float(sum(counts.live for counts in summary.nonfinite.values()) + scalars)


def tokens(summary: StepSummary) -> float | None:
    """Tokens under the loss mask."""
    return float(summary.tokens)


def staleness(summary: StepSummary) -> float | None:
    """Mean age of the sampled tokens, in weight versions."""
    return summary.staleness


def _scalar(name: str, what: str) -> Signal:
    def read(summary: StepSummary) -> float | None:
        return summary.scalars.get(name)

    read.__doc__ = what
    return read


RATIO_SIGNALS: dict[str, Signal] = {
    "update_std": update_std,
    "clip_fraction_positive": clip_fraction_positive,
    "clip_fraction_negative": clip_fraction_negative,
    "update_q05_negative": _quantile_signal(Sign.NEGATIVE, 0.05),
    "update_q05_positive": _quantile_signal(Sign.POSITIVE, 0.05),
    "update_q95_negative": _quantile_signal(Sign.NEGATIVE, 0.95),
    "update_q95_positive": _quantile_signal(Sign.POSITIVE, 0.95),
    "asymmetry": asymmetry,
    "asymmetry_mean": asymmetry_mean,
}
"""Signals of the clipped log-ratio, whose baselines hold for one regime; see `trimtab.agent.regime`."""

SIGNALS: dict[str, Signal] = RATIO_SIGNALS | {
    "mismatch_std": mismatch_std,
    "mismatch_mean": mismatch_mean,
    "mismatch_kl": mismatch_kl,
    "ess": ess,
    "asymmetry_gap": asymmetry_gap,
    "escape_excess": escape_excess,
    "entropy": entropy,
    "entropy_negative": entropy_negative,
    "entropy_positive": entropy_positive,
    "garbage_fraction": _scalar("garbage_fraction", "Share of responses that are not in the language of the task."),
    "reward_mean": _scalar("reward_mean", "Mean reward of the step's responses."),
    "grad_norm": _scalar("grad_norm", "Norm of the gradient before clipping."),
    "nonfinite": nonfinite,
    "tokens": tokens,
    "staleness": staleness,
    "length_mean": _scalar("length_mean", "Mean response length, tokens."),
    "zero_variance_fraction": _scalar("zero_variance_fraction", "Share of groups in which every reward is the same."),
}


def read_all(summary: StepSummary) -> dict[str, float | None]:
    """Every signal of one step; a value beyond `LARGEST` is read as the infinity of its sign."""
    return {name: _bounded(read(summary)) for name, read in SIGNALS.items()}


def _bounded(value: float | None) -> float | None:
    return value if value is None or not abs(value) > LARGEST else math.copysign(math.inf, value)
