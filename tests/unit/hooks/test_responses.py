"""The mismatch by position, by length and of whole responses, against explicit loops, for every path."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_threads import run_threads
from token_batches import PATHS, accumulated, as_torch, poisoned, random_batch, read

from trimtab.hooks.accumulate import Accumulator
from trimtab.hooks.collective import Collective
from trimtab.hooks.records import (
    MAX_LOGPROB,
    MEAN_LEVELS,
    RATIO_CAPS,
    Bucket,
    RecordError,
    SequenceTotals,
    StepSummary,
    TokenBatch,
)
from trimtab.hooks.wire import decode, encode

path = pytest.mark.parametrize("measured_by", PATHS.values(), ids=PATHS)

POSITIONS = [(0, 0), (1, 3), (4, 15), (16, 63), (64, 255), (256, None)]
LENGTHS = [(1, 3), (4, 15), (16, 63), (64, 255), (256, 1023), (1024, None)]


def usable(value: float) -> bool:
    return math.isfinite(value) and value <= np.float32(MAX_LOGPROB)


def place(ranges: list[tuple[int, int | None]], value: int) -> int:
    return next(i for i, (low, high) in enumerate(ranges) if value >= low and (high is None or value <= high))


def looped(tensors: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """[6, 3] by position, [6, 3] by length, and the fields of `SequenceTotals`, token by token."""
    mask, old, sampler = tensors["loss_mask"], tensors["old_logprobs"], tensors["rollout_logprobs"]
    advantages = np.asarray(tensors["advantages"])
    positions, lengths = np.zeros((6, 3)), np.zeros((6, 3))
    ratios, means, sequences, missing, latent = [], [], 0, 0, 0
    for row in range(len(mask)):
        live = [t for t in range(mask.shape[1]) if mask[row, t]]
        if not live:
            continue
        sequences += 1
        latent += sum(
            usable(old[row, t]) and usable(sampler[row, t]) and float(old[row, t]) - float(sampler[row, t]) > 88.7228
            for t in range(live[0], live[-1])
            if not mask[row, t]
        )
        missing += not any(usable(sampler[row, t]) for t in live)
        terms = []
        for t in live:
            advantage = advantages[row, t] if advantages.ndim == 2 else advantages[row]
            if usable(old[row, t]) and usable(sampler[row, t]) and np.isfinite(advantage):
                x = float(np.clip(old[row, t] - sampler[row, t], -20, 20))
                terms.append(x)
                for ranges, sums, value in (
                    (POSITIONS, positions, t - live[0]),
                    (LENGTHS, lengths, len(live)),
                ):
                    sums[place(ranges, value)] += (1, x, abs(x))
        if terms:
            ratios.append(math.exp(min(20.0, max(-20.0, sum(terms)))))
            means.append(abs(sum(terms)) / len(terms))
    return (
        positions,
        lengths,
        {
            "sequences": sequences,
            "missing": missing,
            "observed": len(ratios),
            "ratio": sum(ratios),
            "ratio_sq": sum(ratio**2 for ratio in ratios),
            "ratio_above": tuple(sum(ratio > cap for ratio in ratios) for cap in RATIO_CAPS),
            "mean_above": tuple(sum(mean > level for mean in means) for level in MEAN_LEVELS),
            "latent": latent,
        },
    )


def assert_buckets(got: tuple[Bucket, ...], ranges: list[tuple[int, int | None]], want: np.ndarray) -> None:
    assert [(bucket.first, bucket.last) for bucket in got] == ranges
    assert [bucket.tokens for bucket in got] == want[:, 0].tolist()
    for bucket, (_, total, absolute) in zip(got, want, strict=True):
        assert bucket.total == pytest.approx(total, rel=0, abs=1e-9 * absolute + 1e-12)
        assert bucket.absolute == pytest.approx(absolute, rel=1e-9)


def assert_looped(got: StepSummary, tensors: dict[str, Any]) -> None:
    positions, lengths, sequences = looped(tensors)
    assert_buckets(got.by_position, POSITIONS, positions)
    assert_buckets(got.by_length, LENGTHS, lengths)
    assert got.sequences is not None
    for name, want in sequences.items():
        assert getattr(got.sequences, name) == pytest.approx(want, rel=1e-9), name


def ragged(seed: int) -> dict[str, Any]:
    """Rows that begin and end anywhere, with holes; one of four has no sampler log-prob, some have no live token."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 7)), int(rng.choice([1, 3, 7, 40, 300, 600, 1100])))
    tensors = random_batch(
        seed, shape=shape, spread=float(rng.choice([1e-3, 0.05, 0.5, 30.0])), per_token=seed % 2 == 0
    )
    bounds = np.sort(rng.integers(0, shape[1] + 1, (shape[0], 2)), axis=1)
    places = np.arange(shape[1])
    tensors["loss_mask"] &= (places >= bounds[:, :1]) & (places < bounds[:, 1:])
    tensors["rollout_logprobs"][rng.random(shape) < rng.choice([0.0, 0.001, 0.2])] = -91.0 - 20 * (seed % 5)
    tensors["rollout_logprobs"][rng.random(shape[0]) < 0.25] = np.nan
    return poisoned(tensors, seed) if seed % 3 == 0 else tensors


@path
@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_token_is_counted_where_an_explicit_loop_counts_it(measured_by: Any, seed: int) -> None:
    tensors = ragged(seed)
    assert_looped(measured_by(tensors), tensors)


@path
@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_buckets_hold_the_tokens_of_the_sketch(measured_by: Any, seed: int) -> None:
    got = measured_by(ragged(seed))
    pooled = got.sketches["mismatch"].pooled
    for buckets in (got.by_position, got.by_length):
        assert sum(bucket.tokens for bucket in buckets) == pooled.n
        size = sum(bucket.absolute for bucket in buckets)
        total = sum(bucket.total for bucket in buckets)
        assert total == pytest.approx(pooled.sum("log_ratio"), rel=0, abs=1e-6 * size + 1e-12)


@path
def test_a_scrambled_first_token_is_seen_at_its_position(measured_by: Any) -> None:
    """verl issue 5459: FP8 rollouts of which the first token is always wrong. Prompts of different lengths are masked,
    and so is a tool's answer in the middle."""
    old = np.full((2, 40), -7.0, dtype=np.float32)
    mask = np.ones((2, 40))
    mask[0, :5], mask[1, :9], mask[1, 12:20] = 0, 0, 0
    sampler = old + np.float32(3.0)
    sampler[0, 5] = sampler[1, 9] = -1.0
    got = measured_by({"train_logprobs": old, "old_logprobs": old, "rollout_logprobs": sampler, "loss_mask": mask,
                       "advantages": np.float32([1.0, -1.0])})  # fmt: skip
    assert [bucket.tokens for bucket in got.by_position] == [2, 3 + 2, 12 + 5, 19 + 15, 0, 0]
    assert [bucket.absolute / bucket.tokens for bucket in got.by_position[:4]] == [6.0, 3.0, 3.0, 3.0]
    assert [bucket.tokens for bucket in got.by_length] == [0, 0, 35 + 23, 0, 0, 0]


@path
def test_a_constant_bias_becomes_a_ratio_of_the_whole_response(measured_by: Any) -> None:
    """TRL issue 4772: 0.012 nats a token and 100 tokens are a ratio of 3.3, above a cap of 3."""
    old = np.full((3, 100), -1.0, dtype=np.float32)
    tensors = {"train_logprobs": old, "old_logprobs": old, "rollout_logprobs": old - np.float32(0.012),
               "loss_mask": np.ones((3, 100)), "advantages": np.float32([1.0, 0.0, -1.0])}  # fmt: skip
    got = measured_by(tensors).sequences
    assert got.ratio / got.observed == pytest.approx(math.exp(1.2), rel=1e-5)
    assert (got.ratio_above, got.mean_above) == ((3, 3, 0, 0), (3, 3, 3, 3, *[0] * 8))


@path
def test_a_sampler_that_gave_nothing_for_a_whole_response_is_counted(measured_by: Any) -> None:
    tensors = random_batch(1, shape=(4, 30)) | {"advantages": np.float32([1, 1, np.nan, -1])}
    tensors["rollout_logprobs"][0] = np.nan
    tensors["rollout_logprobs"][1] = np.where(tensors["loss_mask"][1], 1.0, -1.0)  # fine in the padding alone
    tensors["old_logprobs"][3] = np.nan  # the trainer's fault
    got = measured_by(tensors).sequences
    assert (got.sequences, got.missing, got.observed) == (4, 2, 0)


@path
@pytest.mark.parametrize("shape", [(0, 7), (3, 0), (3, 7)])
def test_rows_without_live_tokens_are_no_responses(measured_by: Any, shape: tuple[int, int]) -> None:
    got = measured_by(random_batch(3, shape=shape) | {"loss_mask": np.zeros(shape)})
    assert got.sequences == SequenceTotals()
    assert {bucket.tokens for bucket in (*got.by_position, *got.by_length)} == {0}


@path
def test_packed_tokens_say_nothing_of_responses(measured_by: Any) -> None:
    flat = {name: value.reshape(-1) for name, value in random_batch(8, per_token=True).items()}
    got = measured_by(flat)
    assert got.sketches["mismatch"].pooled.n > 0
    assert (got.by_position, got.by_length, got.sequences) == ((), (), None)


@path
def test_without_the_samplers_logprobs_nothing_is_observed(measured_by: Any) -> None:
    tensors = random_batch(9)
    del tensors["rollout_logprobs"]
    got = measured_by(tensors)
    assert (got.by_position, got.by_length, got.sequences) == ((), (), None)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**32), min_size=1, max_size=4))
def test_calls_and_ranks_add_up(seeds: list[int]) -> None:
    batches = [ragged(seed) for seed in seeds]
    width = max(batch["loss_mask"].shape[1] for batch in batches)
    whole: dict[str, Any] = {}
    for name in ("train_logprobs", "old_logprobs", "rollout_logprobs", "advantages", "loss_mask"):
        rows = []
        for batch in batches:
            value = np.asarray(batch[name])
            if name == "advantages" and value.ndim == 1:
                value = np.broadcast_to(value[:, None], batch["loss_mask"].shape)
            rows.append(np.pad(value, ((0, 0), (0, width - value.shape[1]))))
        whole[name] = np.concatenate(rows)
    assert_looped(accumulated(*batches), whole)
    ranks = []
    for convert, batch in zip((dict, as_torch, dict, as_torch), batches, strict=False):
        rank = Accumulator()
        rank.add(TokenBatch(**convert(batch)))
        ranks.append(rank.drain().read())
    assert_looped(read(np.sum(ranks, axis=0)), whole)


def test_the_sum_over_ranks_is_that_of_their_batches() -> None:
    batches = [random_batch(seed, shape=(3, 50)) for seed in range(3)]

    def rank(collective: Collective) -> StepSummary:
        accumulator = Accumulator()
        accumulator.add(TokenBatch(**batches[collective.rank]))
        host, device = accumulator.take()
        return read(collective.sum(host, device).read())

    whole = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    for got in run_threads(3, rank):
        assert_looped(got, whole)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_was_measured_crosses_the_wire(seed: int) -> None:
    summary = accumulated(ragged(seed))
    assert decode(StepSummary, encode(summary)) == summary


def test_a_summary_from_before_has_none_of_it() -> None:
    got = decode(StepSummary, json.dumps({"job": "run", "attempt": 1, "step": 3}))
    assert (got.pass_index, got.by_position, got.by_length, got.sequences) == (0, (), (), None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"last": 3}, "last: 3 is before first, 4"),
        ({"tokens": -1}, "tokens: -1 is negative"),
        ({"absolute": 1.0}, r"absolute: 1.0 is not in 0..0 for 0 tokens"),
        ({"tokens": 1, "absolute": math.nan}, "absolute: nan"),
        ({"tokens": 1, "absolute": 0.5, "total": -0.6}, "total: -0.6 is beyond absolute, 0.5"),
        ({"tokens": 1, "absolute": 0.5, "total": math.nan}, "total: nan is beyond"),
    ],
)
def test_a_bucket_that_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        Bucket(**({"first": 4, "last": None} | fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sequences": 1, "missing": 1, "observed": 1}, "missing, observed: 1 and 1 of 1 sequences"),
        ({"ratio_above": (1, 0, 0, 0)}, r"ratio_above: \(1, 0, 0, 0\) are not the numbers, of 0, above each"),
        ({"sequences": 2, "observed": 2, "mean_above": (1, 2, *[0] * 10)}, "mean_above: "),
        ({"mean_above": (0,)}, r"mean_above: \(0,\)"),
        ({"ratio": 1.0}, "ratio: 1.0 is not in 0..0 for 0 sequences"),
        ({"sequences": 1, "observed": 1, "ratio_sq": math.inf}, "ratio_sq: inf"),
    ],
)
def test_totals_that_cannot_be_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        SequenceTotals(**fields)
