"""What crosses between a training process and the agent: one record up, one command down.

Numbers may be non-finite: that is data. On the wire NaN and the infinities are the strings "NaN", "Infinity",
"-Infinity" (see `trimtab.hooks.wire`); they are never null, which means *not observed*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from trimtab.hooks.controls import Capabilities, ClipBounds, Controls, ControlValue, check_value
from trimtab.hooks.log_facts import LogFacts
from trimtab.hooks.sketch import MAX_COUNT, MAX_LOG_RATIO, Sketch

SCHEMA_VERSION = 1
MAX_LOGPROB = 1e-4
"""A log-prob above it, in float32, is none: forks put 1 where the sampler gave none. Rounding reaches 1e-5."""
RATIO_CAPS = (2.0, 3.0, 5.0, 10.0)
"""Ratios above which responses are counted: usual bounds of importance weights."""
MEAN_LEVELS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Mean log-ratios above which responses are counted, nats a token."""
MAX_SCALARS = 512
"""In one summary."""
MAX_NAME_LENGTH = 128
"""Of a scalar."""
MAX_NONFINITE = 512
"""Tensors in one summary."""
MAX_SKETCHES = 64
MAX_BUCKETS = 256
MAX_REFUSALS = 64
MAX_RANK = 2**31 - 1
"""Databases keep ranks in 32 bits."""
_MOST = {
    "scalars": MAX_SCALARS,
    "nonfinite": MAX_NONFINITE,
    "sketches": MAX_SKETCHES,
    "by_position": MAX_BUCKETS,
    "by_length": MAX_BUCKETS,
    "refusals": MAX_REFUSALS,
}
_SLACK = 1.001
"""Rounding that a sum is allowed."""
MAX_JOB_LENGTH = 128
_JOB_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


class RecordError(ValueError):
    """A record that contradicts itself; the message names the field, the value and what is allowed."""


def check_count(name: str, value: int) -> None:
    """Raise `RecordError` unless `value` can be a count, or a number that counts up."""
    if value < 0:
        raise RecordError(f"{name}: {value} is negative")
    if value >= MAX_COUNT:
        raise RecordError(f"{name}: {value} is not below 2^53")


def check_rank(name: str, value: int) -> None:
    """Raise `RecordError` unless `value` can be a rank, or a number of ranks."""
    check_count(name, value)
    if value > MAX_RANK:
        raise RecordError(f"{name}: {value} is above {MAX_RANK}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """The tensors that one loss call used, as torch tensors or numpy arrays of shape [B, T] unless said otherwise.

    A row is one response. Where several are packed into one, give all tensors as [T]: then no response is measured.
    Log-probs are natural logarithms at the sampling temperature. Only tokens with `loss_mask` != 0 are looked at, so
    anything may stand in the padding. Under the mask a value that is not finite, or a log-prob above `MAX_LOGPROB`,
    leaves out its own token wherever it is needed and is counted; tokens are matched by index, so nothing shifts.
    """

    train_logprobs: Any
    """log p(token) under the weights being trained, from the forward pass of the loss."""
    advantages: Any
    """Advantage of each token, [B, T] or one a sequence, [B] or [B, 1]."""
    loss_mask: Any
    """1 where a token carries loss."""
    old_logprobs: Any = None
    """log p(token) recomputed by the trainer before the first update on this batch; None when it was not."""
    rollout_logprobs: Any = None
    """log p(token) as recorded by the sampler; NaN where it gave none; None when it records nothing."""
    entropy: Any = None
    """Entropy of the trainer's distribution at each token, nats."""
    shadow_train_logprobs: Any = None
    """`train_logprobs` from a BF16 forward pass of the same weights."""
    shadow_old_logprobs: Any = None
    """The ratio's denominator from a BF16 forward pass of the same weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignTotals:
    """Sums over the live tokens of one advantage sign."""

    tokens: int = 0
    advantage_abs: float = 0.0
    entropy_tokens: int = 0
    """Tokens whose entropy was observed and finite."""
    entropy: float = 0.0
    """Nats."""
    entropy_sq: float = 0.0

    def __post_init__(self) -> None:
        for name in ("tokens", "entropy_tokens"):
            check_count(name, getattr(self, name))

    def merged(self, other: SignTotals) -> SignTotals:
        """Both sets of tokens together."""
        return SignTotals(
            tokens=self.tokens + other.tokens,
            advantage_abs=self.advantage_abs + other.advantage_abs,
            entropy_tokens=self.entropy_tokens + other.entropy_tokens,
            entropy=self.entropy + other.entropy,
            entropy_sq=self.entropy_sq + other.entropy_sq,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite:
    """Values of one tensor that cannot be used, by kind; all but `masked` under the loss mask."""

    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    masked: int = 0
    """Not finite, outside the loss mask."""
    invalid: int = 0
    """Finite, but not the logarithm of a probability: above `MAX_LOGPROB`."""

    def __post_init__(self) -> None:
        for name in ("nan", "posinf", "neginf", "masked", "invalid"):
            check_count(name, getattr(self, name))

    @property
    def live(self) -> int:
        """Non-finite values under the loss mask."""
        return self.nan + self.posinf + self.neginf


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The mismatch over the tokens of one range of positions in the response, or of response lengths.

    Log-ratios are those of the sketch `mismatch`, clamped as in its sums, and so are the tokens.
    """

    first: int
    """First position, from 0, or shortest length."""
    last: int | None
    """Last of the range; None where it is open."""
    tokens: int = 0
    total: float = 0.0
    """Sum of the log-ratio, nats."""
    absolute: float = 0.0
    """Sum of its absolute value, nats."""

    def __post_init__(self) -> None:
        for name in ("first", "tokens"):
            check_count(name, getattr(self, name))
        if self.last is not None and self.last < self.first:
            raise RecordError(f"last: {self.last} is before first, {self.first}")
        most = self.tokens * MAX_LOG_RATIO * _SLACK
        if not 0 <= self.absolute <= most:  # NaN fails here too
            raise RecordError(f"absolute: {self.absolute} is not in 0..{most:g} for {self.tokens} tokens")
        if not abs(self.total) <= self.absolute * _SLACK:
            raise RecordError(f"total: {self.total} is beyond absolute, {self.absolute}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceTotals:
    """The mismatch of whole responses: trainer by sampler, as a product over the tokens of each."""

    sequences: int = 0
    """Responses with live tokens."""
    missing: int = 0
    """Those without one usable sampler log-prob."""
    observed: int = 0
    """Those with a log-ratio: the denominator of what follows."""
    ratio: float = 0.0
    """Sum of the responses' ratios, each within e^+-20."""
    ratio_sq: float = 0.0
    """Sum of their squares."""
    ratio_above: tuple[int, ...] = (0,) * len(RATIO_CAPS)
    """Responses whose ratio is above each of `RATIO_CAPS`."""
    mean_above: tuple[int, ...] = (0,) * len(MEAN_LEVELS)
    """Responses whose |mean log-ratio| over their tokens is above each of `MEAN_LEVELS`."""
    latent: int = 0
    """Masked tokens between live ones, of all responses, whose ratio is infinite in float32."""

    def __post_init__(self) -> None:
        for name in ("sequences", "missing", "observed", "latent"):
            check_count(name, getattr(self, name))
        if self.missing + self.observed > self.sequences:
            raise RecordError(f"missing, observed: {self.missing} and {self.observed} of {self.sequences} sequences")
        for name, levels in (("ratio_above", RATIO_CAPS), ("mean_above", MEAN_LEVELS)):
            counts = (self.observed, *getattr(self, name), 0)
            if len(counts) != len(levels) + 2 or any(a < b for a, b in pairwise(counts)):
                raise RecordError(
                    f"{name}: {getattr(self, name)} are not the numbers, of {self.observed}, above each of {levels}"
                )
        for name, power in (("ratio", 1), ("ratio_sq", 2)):
            value, most = getattr(self, name), self.observed * math.exp(power * MAX_LOG_RATIO) * _SLACK
            if not 0 <= value <= most:
                raise RecordError(f"{name}: {value} is not in 0..{most:g} for {self.observed} sequences")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """One training step, of one rank or of several summed: distributions, sums, controls in effect.

    The key is (job, attempt, step, rank): sending it again changes nothing.
    """

    job: str
    attempt: int
    """Grows with every restart, resume or restore, so that `step` may go back."""
    step: int
    """Optimizer step or rollout step: whatever the trainer counts, from 0."""
    rank: int = 0
    """Data-parallel rank that reports it."""
    ranks: int = 1
    """Processes whose measurements are summed in it."""
    failed_ranks: int = 0
    """Those on which a measurement failed in this step: what they could not take is not in it."""
    sketches: dict[str, Sketch] = field(default_factory=dict)
    """`update`: train - denominator, the ratio that the loss clips. `mismatch`: old - rollout (train - rollout where
    nothing was recomputed). `shadow`: the BF16 twin of `update`."""
    negative: SignTotals = SignTotals()
    zero: SignTotals = SignTotals()
    positive: SignTotals = SignTotals()
    scalars: dict[str, float] = field(default_factory=dict)
    """Anything the trainer measures once a step. Some are read by name; docs/attach.md lists them. A name that ends in
    `_fraction` is a fraction in [0, 1]."""
    nonfinite: dict[str, NonFinite] = field(default_factory=dict)
    """By tensor name; only tensors that had any."""
    policy_version: int | None = None
    """Version of the weights that the step trained."""
    staleness: float | None = None
    """Mean age of the sampled tokens, in weight versions."""
    pass_index: int = 0
    """Pass over the same rollouts, from 0, where a step is one of several updates on them."""
    by_position: tuple[Bucket, ...] = ()
    """`mismatch` by position in the response, from its first live token. Like the next two, () or None without rows."""
    by_length: tuple[Bucket, ...] = ()
    """`mismatch` by the number of live tokens of the response."""
    sequences: SequenceTotals | None = None
    """`mismatch` of whole responses."""
    applied: Controls = field(default_factory=Controls)
    """The controls that were in effect during the step, overrides included."""
    generation: int = 0
    """Generation of the overrides that were in effect; 0 before the first command."""
    overrides: dict[str, ControlValue] = field(default_factory=dict)
    """Those overrides; `applied` has them laid over the run's own controls."""
    clip_bounds: ClipBounds | None = None
    """Bounds that the loss clipped by, where they were not the nominal ones of `applied`."""
    capabilities: Capabilities = field(default_factory=lambda: Capabilities(controls={}))
    refusals: tuple[str, ...] = ()
    """Why overrides of this generation were not applied, one line each."""
    dropped_total: int = 0
    """Summaries that this process has lost so far (queue or spool full)."""
    log: LogFacts | None = None
    """Where the step was read from a log; None where it was measured in the process. A job that is read is observed
    only: it has no capabilities, and `applied` says nothing of it."""
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        check_job(self.job)
        for name in ("attempt", "step", "pass_index", "generation", "dropped_total"):
            check_count(name, getattr(self, name))
        for name in ("rank", "ranks", "failed_ranks"):
            check_rank(name, getattr(self, name))
        for name, most in _MOST.items():
            if len(getattr(self, name)) > most:
                raise RecordError(f"{name}: {too_many(len(getattr(self, name)), most)}")
        if self.schema_version != SCHEMA_VERSION:
            raise RecordError(f"schema_version: {self.schema_version} is not {SCHEMA_VERSION}; upgrade the older side")
        if self.staleness is not None:
            check_staleness(self.staleness)
        for name, value in self.scalars.items():
            check_scalar(name, value)
        for name, override in self.overrides.items():
            check_value(name, override)
        if self.log is not None and (self.capabilities.controls or self.overrides or self.generation):
            raise RecordError("log: a job that is read from its log can only be observed; leave out controls")

    @property
    def tokens(self) -> int:
        """Live tokens of all signs."""
        return self.negative.tokens + self.zero.tokens + self.positive.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What the agent wants of a job: a level, not an event. Receiving it twice is receiving it once."""

    job: str
    attempt: int
    """A trainer of another attempt ignores the command."""
    generation: int
    """Grows with every change of the desired overrides; a trainer ignores anything older than it has."""
    overrides: dict[str, ControlValue]
    """All overrides; a control that is missing here returns to the run's own value."""
    reason: str
    issuer: str
    """`agent`, or who changed the controls by hand."""

    def __post_init__(self) -> None:
        check_job(self.job)
        if self.generation < 1:
            raise RecordError(f"generation: {self.generation} is below 1")


def too_many(count: int, most: int) -> str:
    """What is told of a mapping or list with `count` entries of which there may be `most`."""
    return f"{count} entries are more than {most}; report fewer"


def check_scalar(name: str, value: float) -> None:
    """Raise `RecordError` where the name is too long, or says that it is a fraction, and the value is none."""
    if len(name) > MAX_NAME_LENGTH:
        raise RecordError(f"scalars: the name {name[:MAX_NAME_LENGTH]}... is longer than {MAX_NAME_LENGTH} characters")
    if name.endswith("_fraction") and math.isfinite(value) and not 0 <= value <= 1:
        raise RecordError(f"scalars.{name}: {value} is not a fraction in [0, 1]; divide by its own denominator")


def check_staleness(value: float) -> None:
    """Raise `RecordError` unless `value` can be an age."""
    if not value >= 0:
        raise RecordError(f"staleness: {value} is negative or not a number")


def check_job(job: str) -> None:
    """Raise `RecordError` unless `job` can name a job in a URL, a file and a metric label."""
    if not 0 < len(job) <= MAX_JOB_LENGTH or not set(job) <= _JOB_LETTERS or job.startswith("."):
        raise RecordError(
            f"job: {job!r} must be 1 to {MAX_JOB_LENGTH} letters, digits, '-', '_' or '.', and not start with '.'"
        )
