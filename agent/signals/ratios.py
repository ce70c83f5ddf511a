"""Signals of the log-ratios: how far they spread, where their tails lie by advantage sign, what the clip does.

With d the log-ratio of a token in nats, r = e^d, A its advantage, N and P the tokens of negative and positive
advantage:

    skew           (mean_P(r - 1) a+ - mean_N(1 - r) a-) / a          a+-, a: mean |A| of a sign, and of both
    lost penalty   P(r < 1 - clip_low | N) * sum_N |A| / sum |A|
    chi2           mean(r^2) - 1          ESS  mean(r)^2 / mean(r^2)          k3  mean(r - 1 - d)

The sign-dependent skew of (r - 1) A is what harms, not |d|. Both it and the lost penalty take the mean |A| of a sign
for that of each token, because a sketch does not hold their joint distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from trimtab.agent.signals.step import MIN_TOKENS, Distribution, Signal, Step, told
from trimtab.hooks.controls import Controls
from trimtab.hooks.records import MEAN_LEVELS, Bucket
from trimtab.hooks.sketch import Sign

QUANTILES = {"q001": 0.001, "q01": 0.01, "q05": 0.05, "q50": 0.5, "q95": 0.95, "q99": 0.99, "q999": 0.999}
"""Those that are read, by the digits after the point."""
MIN_BEYOND = 5
"""Tokens that must lie beyond a quantile, on its thinner side, for it to be read."""
FAR = 1.5
"""Nats. Beyond every usual clip bound, and beyond one that is calibrated as far as calibration goes (log 0.8 - 1)."""
MIN_BUCKET = 30
"""Tokens of a bucket below which its mean is not read."""


def _spread(step: Step, sketch: str) -> float | None:
    """Standard deviation of the log-ratio over all tokens."""
    means = step.means(sketch)
    return None if means is None else math.sqrt(max(means["log_ratio_sq"] - means["log_ratio"] ** 2, 0.0))


@Signal
def mismatch_std(step: Step) -> float | None:
    """Standard deviation of trainer log-prob - sampler log-prob, nats."""
    return _spread(step, "mismatch")


def _reported(step: Step, name: str) -> float | None:
    """The scalar of that name, where there is no sketch to work it out from: it means the same there."""
    return None if "mismatch" in step.summary.sketches else step.summary.scalars.get(name)


@Signal
def mismatch_mean(step: Step) -> float | None:
    """Mean of trainer log-prob - sampler log-prob, nats: minus the k1 estimate of KL(sampler || trainer)."""
    means = step.means("mismatch")
    return _reported(step, "mismatch_mean") if means is None else means["log_ratio"]


@Signal
def mismatch_kl(step: Step) -> float | None:
    """The k3 estimate of KL(sampler || trainer), mean of r - 1 - log r with r = trainer / sampler, nats."""
    means = step.means("mismatch")
    return _reported(step, "mismatch_kl") if means is None else means["k3"]


@Signal
def ess(step: Step) -> float | None:
    """Effective share of the sample under raw weights r = trainer / sampler: mean(r)^2 / mean(r^2), in (0, 1]."""
    means = step.means("mismatch")
    return None if means is None else means["ratio"] ** 2 / means["ratio_sq"]


@Signal
def chi2_token(step: Step) -> float | None:
    """The chi-squared divergence of trainer from sampler over tokens, mean(r^2) - 1."""
    means = step.means("mismatch")
    return _reported(step, "chi2_token") if means is None else means["ratio_sq"] - 1.0


@Signal
def chi2_sequence(step: Step) -> float | None:
    """The chi-squared divergence of trainer from sampler over whole responses, mean(r^2) - 1."""
    totals = step.summary.sequences
    if totals is None or not totals.observed:
        return _reported(step, "chi2_sequence")
    return totals.ratio_sq / totals.observed - 1.0


@Signal
def ess_sequence(step: Step) -> float | None:
    """Effective share of the responses under raw weights, each the product of its tokens' ratios, in (0, 1]."""
    totals = step.summary.sequences
    if totals is None or not totals.observed or not totals.ratio_sq:
        return None
    return totals.ratio**2 / totals.ratio_sq / totals.observed


@Signal
def mismatch_largest_sequence(step: Step) -> float | None:
    """A lower bound on the largest |mean mismatch| of any response, nats: the highest level that one is above."""
    totals = step.summary.sequences
    if totals is None or not totals.observed:
        return None
    return max((level for level, n in zip(MEAN_LEVELS, totals.mean_above, strict=True) if n), default=0.0)


def _mean_absolute(bucket: Bucket) -> float | None:
    return bucket.absolute / bucket.tokens if bucket.tokens >= MIN_BUCKET else None


@Signal
def mismatch_first_position(step: Step) -> float | None:
    """Mean |trainer log-prob - sampler log-prob| of the responses' first token, nats."""
    return next((_mean_absolute(found) for found in step.summary.by_position if found.last == 0), None)


@Signal
def mismatch_worst_length(step: Step) -> float | None:
    """The mean |trainer log-prob - sampler log-prob| of the response lengths where it is largest, nats."""
    means = (_mean_absolute(bucket) for bucket in step.summary.by_length)
    return max((mean for mean in means if mean is not None), default=None)


def importance_band(controls: Controls) -> tuple[float, float]:
    """Lower and upper end of the importance band, as log-ratios."""
    low = math.log(controls.importance_low) if controls.importance_low else -math.inf
    return low, math.log(controls.importance_high)


@Signal
def retained_fraction(step: Step) -> float | None:
    """Share of the tokens that importance masking keeps: as reported, or as its band leaves them of the mismatch."""
    reported = step.summary.scalars.get("retained_fraction")
    controls = step.summary.applied
    if reported is not None or (controls.importance, controls.importance_level) != ("mis", "token"):
        return reported
    parts = [part for part in step.parts("mismatch") if part.n]
    total = sum(part.n for part in parts)
    if total < MIN_TOKENS:
        return None
    low, high = importance_band(controls)
    return sum(part.n * (part.fraction_below(high) - part.fraction_below(low)) for part in parts) / total


@Signal
def update_std(step: Step) -> float | None:
    """Standard deviation of the log-ratio that the loss clips, nats."""
    return _spread(step, "update")


@Signal
def clip_fraction_positive(step: Step) -> float | None:
    """Share of positive-advantage tokens above the upper clip bound in effect: they carry no gradient."""
    tokens = step.tokens("update", Sign.POSITIVE)
    return None if tokens is None else 1.0 - tokens.fraction_below(step.bounds.high)


@Signal
def clip_fraction_negative(step: Step) -> float | None:
    """Share of negative-advantage tokens below the lower clip bound in effect: they carry no gradient."""
    tokens = step.tokens("update", Sign.NEGATIVE)
    return None if tokens is None else tokens.fraction_below(step.bounds.low)


@Signal
def overreach(step: Step) -> float | None:
    """Share of the tokens that the updates have already carried more than `FAR` nats to where their advantage pushes
    them, and that no clip bound holds back: A < 0 and r < e^-1.5, or A > 0 and r > e^1.5, with gradient.

    Not observed where the loss does not clip each token's ratio.
    """
    if step.summary.applied.objective != "ppo":
        return None
    total = step.n("update")
    if total < MIN_TOKENS:
        return None
    negative, _, positive = step.parts("update")
    far = 0.0
    if negative.n and step.bounds.low < -FAR:
        far += negative.n * (negative.fraction_below(-FAR) - negative.fraction_below(step.bounds.low))
    if positive.n and step.bounds.high > FAR:
        far += positive.n * (positive.fraction_below(step.bounds.high) - positive.fraction_below(FAR))
    return max(far, 0.0) / total


@Signal
def lost_penalty(step: Step) -> float | None:
    """Share of the step's |advantage| whose penalty the lower clip bound silences; see `trimtab.agent.signals.ratios`.

    Not observed where the advantages are not.
    """
    clipped, summary = clip_fraction_negative.read(step), step.summary
    total = summary.negative.advantage_abs + summary.positive.advantage_abs
    return None if clipped is None or total <= 0 else clipped * summary.negative.advantage_abs / total


@Signal
def skew(step: Step) -> float | None:
    """The sign-dependent skew of (r - 1) A by mean |A|, r being the clipped ratio; see `trimtab.agent.signals.ratios`.

    Not observed where the advantages are not.
    """
    negative, positive = step.tokens("update", Sign.NEGATIVE), step.tokens("update", Sign.POSITIVE)
    punished, praised = step.summary.negative, step.summary.positive
    total = punished.advantage_abs + praised.advantage_abs
    if negative is None or positive is None or not (punished.tokens and praised.tokens):
        return None
    mean = total / (punished.tokens + praised.tokens)
    if mean <= 0:  # the least of all floats, shared out, is 0
        return None
    gain = (positive.mean("ratio") - 1.0) * praised.advantage_abs / praised.tokens
    loss = (1.0 - negative.mean("ratio")) * punished.advantage_abs / punished.tokens
    return (gain - loss) / mean


@Signal
def twin_clip_fraction_negative(step: Step) -> float | None:
    """Share of negative-advantage tokens that the BF16 twin would clip, under nominal bounds."""
    tokens = step.tokens("shadow", Sign.NEGATIVE)
    return None if tokens is None else tokens.fraction_below(step.nominal.low)


@Signal
def escape_excess(step: Step) -> float | None:
    """`clip_fraction_negative` minus that of the BF16 twin under nominal bounds: penalties that precision loses."""
    own, twin = clip_fraction_negative.read(step), twin_clip_fraction_negative.read(step)
    return None if own is None or twin is None else own - twin


@Signal
def clip_excess_positive(step: Step) -> float | None:
    """`clip_fraction_positive` minus that of the BF16 twin under nominal bounds: rewarded tokens that precision
    silences."""
    own, twin = clip_fraction_positive.read(step), step.tokens("shadow", Sign.POSITIVE)
    if own is None or twin is None:
        return None
    return own - (1.0 - twin.fraction_below(step.nominal.high))


def _asymmetry(step: Step, sketch: str, read: Callable[[Distribution], float]) -> float | None:
    negative, positive = step.tokens(sketch, Sign.NEGATIVE), step.tokens(sketch, Sign.POSITIVE)
    return None if negative is None or positive is None else read(negative) - read(positive)


def _q05(tokens: Distribution) -> float:
    return tokens.quantile(0.05)


@Signal
def asymmetry(step: Step) -> float | None:
    """q05(A < 0) - q05(A > 0) of the clipped log-ratio, nats: how much deeper the tail of punished tokens lies."""
    return _asymmetry(step, "update", _q05)


@Signal
def asymmetry_mean(step: Step) -> float | None:
    """mean(A < 0) - mean(A > 0) of the clipped log-ratio, nats: the same for the bulk of the tokens."""
    return _asymmetry(step, "update", lambda tokens: tokens.mean("log_ratio"))


@Signal
def twin_asymmetry(step: Step) -> float | None:
    """`asymmetry` of the BF16 twin at the same weights, nats: what staleness does."""
    return _asymmetry(step, "shadow", _q05)


@Signal
def asymmetry_gap(step: Step) -> float | None:
    """`asymmetry` minus that of the BF16 twin at the same weights, nats: what precision does, staleness taken away."""
    own, twin = asymmetry.read(step), twin_asymmetry.read(step)
    return None if own is None or twin is None else own - twin


def quantiles(sketch: str, of: str) -> dict[str, Signal]:
    """The quantiles of `QUANTILES` of a sketch, by advantage sign."""
    return {
        f"{sketch}_{digits}_{sign.value}": _quantile(sketch, of, sign, q)
        for sign in (Sign.NEGATIVE, Sign.POSITIVE)
        for digits, q in QUANTILES.items()
    }


def _quantile(sketch: str, of: str, sign: Sign, q: float) -> Signal:
    # 0.05 * 100 is 5, and 1 - 0.95 is below 0.05.
    thinner, enough = min(q, 1.0 - q), MIN_BEYOND * (1 - 1e-9)

    def read(step: Step) -> float | None:
        tokens = step.tokens(sketch, sign)
        return None if tokens is None or tokens.n * thinner < enough else tokens.quantile(q)

    return told(read, f"The {q:.1%} quantile of {of} over {sign.value}-advantage tokens, nats.")
