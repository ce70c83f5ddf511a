"""A fault of the pipeline, by name: what no statistic of a number format looks like, and no remedy mends.

Let d = trainer log-prob - sampler log-prob of a sampled token (nats), n tokens a step.

- `scales`, CRITICAL at once: three tokens of four with |d| > 1. Rounding leaves most tokens almost where they are: in
  collapsing NVFP4 runs sd(d) was 0.5 to 1.6, of which a normal puts at most 53 % beyond 1, and three steps after a
  collapse 53 % were, with a mean of -2.3. Wrong weights, or scales that were not loaded, move all of them.
- `overflow`, CRITICAL at once: a live token with a log-ratio above 32, which an exponential in float32 does not
  survive for long (e^89 is infinite). Under the sampler such a token has probability e^-32. The share beyond +-20
  stands beside it.
- `latent`, WARN: a token outside the mask, between live ones of its response, whose ratio is infinite in float32.
  Whoever multiplies by the mask after the exponential has 0 * inf there. Prompts and padding may hold anything, and say
  nothing.
- `misaligned`, CRITICAL at once: more than 2 e^-x n and at least 20 tokens with d > x, for an x of 2 to 6. Where both
  sides score the token that was sampled, E[e^d] <= 1, so P(d > x) <= e^-x whatever the noise (Markov). Log-probs of
  different tokens are bound by nothing, and break the bound where they vary by several nats.
- `first_token`, CRITICAL at once: mean |d| of the first tokens above 1 and 10 times that of all others.
- `offset`, WARN: |mean5(d)| > 0.02 and, less the mean5(sd(d))^2 / 2 that noise alone brings, above half of
  mean5(sd(d)). Top-p in the sampler's log-probs, or another temperature, moves tokens together.
- `padding`, WARN: more tokens under the mask than there are outside the padding.
- `clamped`, WARN: more than 0.1 % of the tokens with a log-ratio beyond +-20, where every exponential is clamped.
- `deflation`, WARN, only under importance weights of whole sequences: their mean below 0.8 while that of tokens is
  within 5 % of 1. Both have the expectation 1.

Expected false alarms: none. Every limit is beyond what sampling and rounding do, `offset` by the size of the effect and
not by its significance. Answers of at most three tokens certify nothing: INCONCLUSIVE where there are no others.
Sources: public reports D01, D02, D10, D20, D23 and D39 in `tests/contract/cases`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from trimtab.agent.checks import MOST, require
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.signals.step import MIN_TOKENS, Distribution, Step
from trimtab.agent.state import Finding, State
from trimtab.hooks.records import StepSummary
from trimtab.hooks.sketch import BINS, MAX_LOG_RATIO, bin_index

FEWEST_FIRST = 16
"""First tokens below which they are not."""
FEWEST_BEYOND = 20
"""Tokens beyond a bound that chance allows none of."""
SHORT = 3
"""Tokens of an answer that certifies nothing."""
_TAILS = (2.0, 3.0, 4.0, 5.0, 6.0)
_ASKED = np.array([-MAX_LOG_RATIO, -1.0, 1.0, *_TAILS, MAX_LOG_RATIO], dtype=np.float32)
_BIN: dict[float, int] = dict(zip(_ASKED.tolist(), bin_index(_ASKED).tolist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """Limits of its rules."""

    everywhere: float = 0.75
    """Share of tokens with |d| > 1 from which the weights are wrong."""
    first_token_limit: float = 1.0
    """On mean |d| of first tokens, nats."""
    bias_limit: float = 0.02
    """On |mean5(d)|, nats, where the spread is no larger."""
    clamped_limit: float = 0.001
    """On the share of clamped tokens."""
    deflation_limit: float = 0.8
    """On the mean importance weight of sequences."""

    def __post_init__(self) -> None:
        for name in ("first_token_limit", "bias_limit"):
            value = getattr(self, name)
            require(0 < value <= MOST, f"detectors.pipeline.{name}", value, f"in (0, {MOST}]")
        for name in ("everywhere", "clamped_limit", "deflation_limit"):
            value = getattr(self, name)
            require(0 < value < 1, f"detectors.pipeline.{name}", value, "between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Remembers nothing."""

    ROLE: ClassVar[Role] = Role.INPUT
    SIGNALS: ClassVar[tuple[str, ...]] = ()

    def update(self, settings: PipelineSettings, reading: Reading) -> tuple[Pipeline, Finding]:
        """See the module."""
        faults = tuple(_faults(settings, reading))
        critical = [fault for fault in faults if fault.state is State.CRITICAL]
        return self, next(iter((*critical, *faults)), None) or _without_fault(reading)


def beyond(parts: Iterable[Distribution], x: float) -> int:
    """Tokens whose log-ratio lies further out than the bin of `x`, on its side of 0; `x` is one of those that rules
    ask for."""
    return sum([tokens.beyond(_BIN[x], up=x > 0) for tokens in parts])


def _faults(settings: PipelineSettings, reading: Reading) -> Iterator[Finding]:
    step, summary = reading.step, reading.summary
    yield from _overflow(settings, step)
    means = step.means("mismatch")
    if means is not None:
        yield from _scales(settings, step, means)
        yield from _misaligned(step)
        yield from _deflation(settings, step, means)
    yield from _first_token(settings, summary)
    yield from _offset(settings, reading)
    excess = summary.scalars.get("mask_tokens_excess", 0.0)
    if excess > 0:
        yield _fault("padding", f"padding inside the mask: {excess:.0f} tokens", {"mask_tokens_excess": excess})
    latent = 0 if summary.sequences is None else summary.sequences.latent
    if latent:
        told = f"latent overflow: {latent} masked +inf, the ratio of a token outside the mask but inside its response"
        yield _fault("latent", told, {"masked_overflow": float(latent)})


def _fault(rule: str, message: str, evidence: dict[str, float], *, critical: bool = False, score: float = 1) -> Finding:
    return Finding(
        state=State.CRITICAL if critical else State.WARN,
        score=score,
        evidence=evidence,
        message=f"{message}: a fault of the pipeline",
        rule=rule,
    )


def _overflow(settings: PipelineSettings, step: Step) -> Iterator[Finding]:
    for name in ("mismatch", "update"):
        parts = step.parts(name)
        outside = beyond(parts, MAX_LOG_RATIO) + beyond(parts, -MAX_LOG_RATIO)
        if not outside:
            continue
        over, clamped = sum([tokens.beyond(BINS - 2, up=True) for tokens in parts]), outside / step.n(name)
        evidence = {"clamped_fraction": clamped, "clamped_limit": settings.clamped_limit}
        if over:
            told = (
                f"{over} live token{'s' if over > 1 else ''} with a log-ratio above 32 ({name}), whose ratio overflows"
            )
            yield _fault("overflow", told, {f"{name}_overflow": float(over)} | evidence, critical=True)
        if clamped > settings.clamped_limit:
            told = f"{clamped:.2%} of the log-ratios ({name}) lie beyond +-20 and are clamped"
            yield _fault("clamped", told, evidence, score=clamped / settings.clamped_limit)


def _scales(settings: PipelineSettings, step: Step, means: Mapping[str, float]) -> Iterator[Finding]:
    parts, summary, mean = step.parts("mismatch"), step.summary, means["log_ratio"]
    share = (beyond(parts, 1.0) + beyond(parts, -1.0)) / step.n("mismatch")
    if share > settings.everywhere:
        yield _fault(
            "scales",
            f"trainer and sampler log-probs differ by {mean:+.2f} nats on average, {share:.0%} of the tokens by more "
            f"than 1{_profile_told(summary)}",
            {"mismatch_mean": mean, "beyond_1": share, "everywhere": settings.everywhere} | profiles(summary),
            critical=True,
            score=share / settings.everywhere,
        )


def _misaligned(step: Step) -> Iterator[Finding]:
    tokens, parts = step.n("mismatch"), step.parts("mismatch")
    for x in _TAILS:
        count, bound = beyond(parts, x), math.exp(-x) * tokens
        if count < FEWEST_BEYOND:
            return  # further out there are no more
        if count > 2 * bound:
            yield _fault(
                "misaligned",
                f"{count} tokens are {x:g} nats likelier to the trainer than to the sampler that drew them, where at "
                f"most {bound:.0f} can be",
                {"tokens_beyond": float(count), "beyond": x, "bound": bound},
                critical=True,
                score=count / (2 * bound),
            )
            return


def _first_token(settings: PipelineSettings, summary: StepSummary) -> Iterator[Finding]:
    first = next((bucket for bucket in summary.by_position if (bucket.first, bucket.last) == (0, 0)), None)
    rest = [bucket for bucket in summary.by_position if bucket.first > 0]
    others = sum(bucket.tokens for bucket in rest)
    if first is None or first.tokens < FEWEST_FIRST or others < FEWEST_FIRST:
        return
    own, usual = first.absolute / first.tokens, sum(bucket.absolute for bucket in rest) / others
    if own > settings.first_token_limit and own > 10 * usual:
        yield _fault(
            "first_token",
            f"the first tokens of responses differ by {own:.2f} nats, all others by {usual:.3f}",
            profiles(summary) | {"first_token_limit": settings.first_token_limit},
            critical=True,
            score=own / settings.first_token_limit,
        )


def _offset(settings: PipelineSettings, reading: Reading) -> Iterator[Finding]:
    mean, std = reading.mean("mismatch_mean"), reading.mean("mismatch_std")
    if mean is None or std is None or reading.broken(mean, std):
        return
    excess = abs(mean) - std**2 / 2
    if abs(mean) > settings.bias_limit and excess > std / 2:
        yield _fault(
            "offset",
            f"trainer and sampler log-probs differ by {mean:+.3f} nats with a spread of only {std:.3f}",
            {"mismatch_mean": mean, "mismatch_std": std, "bias_limit": settings.bias_limit},
            score=abs(mean) / settings.bias_limit,
        )


def _deflation(settings: PipelineSettings, step: Step, means: Mapping[str, float]) -> Iterator[Finding]:
    whole, applied = step.summary.sequences, step.summary.applied
    used = applied.importance != "none" and applied.importance_level == "sequence"
    if not used or whole is None or whole.observed < FEWEST_FIRST:
        return
    of_tokens, of_sequences = means["ratio"], whole.ratio / whole.observed
    if abs(of_tokens - 1) < 0.05 and of_sequences < settings.deflation_limit:
        yield _fault(
            "deflation",
            f"length-scaled deflation of importance weights: {of_sequences:.3f} a sequence, {of_tokens:.3f} a token",
            {"sequence_ratio": of_sequences, "token_ratio": of_tokens, "deflation_limit": settings.deflation_limit},
            score=settings.deflation_limit / max(of_sequences, 1e-9),
        )


def profiles(summary: StepSummary) -> dict[str, float]:
    """Mean |d| by position in the response, and by its length, where they are reported; nats."""
    named = {"position": summary.by_position, "length": summary.by_length}
    return {
        f"mismatch_{name}_{_range(bucket.first, bucket.last)}": bucket.absolute / bucket.tokens
        for name, buckets in named.items()
        for bucket in buckets
        if bucket.tokens
    }


@lru_cache(maxsize=256)  # a run has some twenty ranges, the same in every step
def _range(first: int, last: int | None) -> str:
    return str(first) if first == last else f"{first}-{'' if last is None else last}"


def _profile_told(summary: StepSummary) -> str:
    known = [bucket for bucket in summary.by_position if bucket.tokens]
    told = ", ".join(f"{_range(each.first, each.last)}: {each.absolute / each.tokens:.2f}" for each in known)
    return f" (by position: {told})" if told else ""


def _without_fault(reading: Reading) -> Finding:
    summary = reading.summary
    if "mismatch" not in summary.sketches:
        return Finding(state=State.NOT_OBSERVED, message="mismatch: not observed (no sampler log-probs)")
    evidence = profiles(summary)
    if reading.step.means("mismatch") is None:
        message = f"fewer than {MIN_TOKENS} tokens to compare"
        return Finding(state=State.INCONCLUSIVE, evidence=evidence, message=message)
    if reading.broken(reading.mean("mismatch_mean"), reading.mean("mismatch_std")):
        return Finding(state=State.INCONCLUSIVE, evidence=evidence, message="the mismatch is not finite")
    lengths = [bucket for bucket in summary.by_length if bucket.tokens]
    if lengths and all(bucket.last is not None and bucket.last <= SHORT for bucket in lengths):
        message = f"every answer has at most {SHORT} tokens: too short to certify that log-probs agree"
        return Finding(state=State.INCONCLUSIVE, evidence=evidence, message=message)
    return Finding(state=State.OK, evidence=evidence, message="log-probs are aligned, and differ by noise alone")
