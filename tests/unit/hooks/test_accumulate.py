"""What is summed up, against plain numpy on the selected tokens, for every path: numpy, compiled, and any device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from token_batches import (
    PATHS,
    RECOMPUTED,
    SAMPLER,
    accumulated,
    as_torch,
    assert_same,
    expected,
    poisoned,
    random_batch,
    read,
)

from trimtab.hooks.accumulate import Accumulator
from trimtab.hooks.accumulate_torch import DeviceSums, landing
from trimtab.hooks.layout import Packed
from trimtab.hooks.records import NonFinite, SignTotals, TokenBatch
from trimtab.hooks.sketch import ZERO_BIN, Sketch, bin_index

path = pytest.mark.parametrize("measured_by", PATHS.values(), ids=PATHS)


@path
@pytest.mark.parametrize("per_token", [False, True], ids=["advantage a sequence", "advantage a token"])
@pytest.mark.parametrize("spread", [1e-3, 0.05, 0.5, 10.0, 50.0])
@pytest.mark.parametrize(("reference", "pairs"), [("recomputed", RECOMPUTED), ("sampler", SAMPLER)])
def test_sums_and_counts_of_live_tokens(
    measured_by: Any, per_token: bool, spread: float, reference: Any, pairs: Any
) -> None:
    tensors = random_batch(int(spread * 1000), spread=spread, per_token=per_token)
    assert_same(measured_by(tensors, reference=reference), expected(tensors, pairs))


@path
@given(seed=st.integers(0, 2**32))
def test_what_cannot_be_used_is_left_out_and_counted_where_it_was(measured_by: Any, seed: int) -> None:
    tensors = poisoned(random_batch(seed, per_token=seed % 2 == 0), seed)
    assert_same(measured_by(tensors), expected(tensors, RECOMPUTED))


@path
def test_long_sequences_keep_their_precision(measured_by: Any) -> None:
    tensors = random_batch(5, shape=(3, 20_000))
    assert_same(measured_by(tensors), expected(tensors, RECOMPUTED))


def test_two_batches_or_two_ranks_are_one() -> None:
    first, second = random_batch(1), random_batch(2)
    both = {name: np.concatenate([first[name], second[name]]) for name in first}
    for convert in (dict, as_torch):
        assert_same(accumulated(convert(first), convert(second)), expected(both, RECOMPUTED))
    ranks = []
    for tensors in (first, second):
        rank = Accumulator()
        rank.add(TokenBatch(**as_torch(tensors)))
        ranks.append(rank.drain().read())
    assert_same(read(ranks[0] + ranks[1]), expected(both, RECOMPUTED))


@path
@pytest.mark.parametrize("shape", [(0, 7), (3, 0), (3, 7)])
def test_nothing_live_is_measured_as_nothing(measured_by: Any, shape: tuple[int, int]) -> None:
    tensors = random_batch(3, shape=shape) | {"loss_mask": np.zeros(shape)}
    got = measured_by(tensors)
    nothing = Sketch()
    assert got.sketches == {"update": nothing, "mismatch": nothing, "shadow": nothing}
    assert (got.negative, got.zero, got.positive) == (SignTotals(), SignTotals(), SignTotals())
    assert got.nonfinite == {}


@path
def test_one_stale_token_under_the_mask_spoils_nothing(measured_by: Any) -> None:
    """prime-rl issue 2972: log-ratio 89 overflows float32, and 0 x inf is NaN."""
    train = np.float32([[-2.0, -2.0, -2.0, -2.0]])
    sampler = train - np.float32([[0.0, 89.0, 0.1, 0.0]])
    tensors = {"train_logprobs": train, "rollout_logprobs": sampler, "advantages": np.float32([1.0])}
    masked = measured_by({**tensors, "loss_mask": np.float32([[1, 0, 1, 1]])}).sketches["update"].positive
    assert masked.n == 3
    assert masked.sum("log_ratio") / 3 == pytest.approx(0.1 / 3, rel=1e-6)
    live = measured_by({**tensors, "loss_mask": np.float32([[1, 1, 1, 1]])}).sketches["update"].positive
    assert (live.n, live.counts[-1], live.sum("log_ratio")) == (4, 1, pytest.approx(20.1, rel=1e-6))


@path
def test_overflow_bins_hold_what_drifted_away(measured_by: Any) -> None:
    """prime-rl pull request 1329: log-ratios of +-700 were seen."""
    train = np.full((10, 100), -1.0, dtype=np.float32)
    old = train.copy()
    old[0, 0], train[5, 5] = -701.0, -701.0
    tensors = {"train_logprobs": train, "old_logprobs": old, "advantages": np.ones(10, dtype=np.float32)}
    sketch = measured_by({**tensors, "loss_mask": np.ones((10, 100))}).sketches["update"].positive
    assert (sketch.bins, sketch.counts) == ((0, ZERO_BIN, 1218), (1, 998, 1))
    assert np.isfinite(sketch.sums).all()


@path
def test_a_sign_of_which_every_token_has_drifted_away_is_reported(measured_by: Any) -> None:
    """Its ratios are near 0, and a sum of them that rounds to less than they can be is refused as none of theirs."""
    train = np.float32([[-60.0, -70.0]])
    tensors = {"train_logprobs": train, "old_logprobs": train / 3, "advantages": np.float32([-1.0])}
    sketch = measured_by({**tensors, "loss_mask": np.ones((1, 2))}).sketches["update"].negative
    assert (sketch.n, sketch.sum("log_ratio")) == (2, -40.0)
    assert 0 < sketch.sum("ratio") < 1e-4


@path
def test_a_sampler_that_gave_no_logprob_costs_only_that_token(measured_by: Any) -> None:
    """TRL issue 6166: the engine returned NaN."""
    tensors = {
        "train_logprobs": np.float32([[-0.1, -0.2, -0.3]]),
        "old_logprobs": np.float32([[-0.1, -0.2, -0.3]]),
        "rollout_logprobs": np.float32([[-0.1, np.nan, -0.3]]),
        "advantages": np.float32([-1.0]),
        "loss_mask": np.ones((1, 3)),
    }
    got = measured_by(tensors)
    assert got.nonfinite == {"rollout_logprobs": NonFinite(nan=1)}
    assert (got.sketches["update"].negative.n, got.sketches["mismatch"].negative.n) == (3, 2)


@path
@pytest.mark.parametrize(
    ("first", "counts"), [(1.0, NonFinite(invalid=1)), (2e-4, NonFinite(invalid=1)), (np.nan, NonFinite(nan=1))]
)
def test_a_first_token_without_logprob_shifts_no_other(measured_by: Any, first: float, counts: NonFinite) -> None:
    """Some samplers give none for the first position, some forks 1.0 for "none": neither is data."""
    old = np.float32([[-1.0, -2.0, -3.0, -4.0]])
    sampler = old - np.float32([[0.0, 0.25, 0.5, 1.0]])
    sampler[0, 0] = first
    tensors = {"train_logprobs": old, "rollout_logprobs": sampler, "advantages": np.float32([1.0])}
    got = measured_by({**tensors, "loss_mask": np.ones((1, 4))})
    ratios = got.sketches["mismatch"].positive
    assert ratios.bins == tuple(bin_index(np.float32([0.25, 0.5, 1.0])).tolist())
    assert (ratios.counts, ratios.sum("log_ratio")) == ((1, 1, 1), 1.75)
    assert got.nonfinite == {"rollout_logprobs": counts}
    assert got.positive.tokens == 4


@path
def test_rounding_just_above_zero_is_a_logprob_and_padding_may_hold_anything(measured_by: Any) -> None:
    train = np.float32([[5e-5, 1.0, -1.0]])
    tensors = {"train_logprobs": train, "old_logprobs": np.float32([[0.0, 1.0, -1.0]]), "advantages": np.float32([1.0])}
    got = measured_by({**tensors, "loss_mask": np.float32([[1, 0, 1]])})
    assert (got.sketches["update"].positive.n, got.nonfinite) == (2, {})


def test_tensors_on_a_device_that_is_not_cuda_are_measured_on_the_host() -> None:
    """Apple's devices, for one, have no float64."""

    class Elsewhere(torch.Tensor):
        @property
        def device(self) -> torch.device:  # type: ignore[override]
            return torch.device("mps")

    tensors = random_batch(15)
    away = {name: value.as_subclass(Elsewhere) for name, value in as_torch(tensors).items()}
    assert_same(accumulated(away), expected(tensors, RECOMPUTED))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_float_types_are_read_as_float32(dtype: torch.dtype) -> None:
    tensors = as_torch(random_batch(4))
    other = {name: value if name == "loss_mask" else value.to(dtype) for name, value in tensors.items()}
    rounded = {name: value if name == "loss_mask" else value.float() for name, value in other.items()}
    wanted = expected({name: value.numpy() for name, value in rounded.items()}, RECOMPUTED)
    assert_same(accumulated(other), wanted)
    device = DeviceSums()
    device.add(TokenBatch(**other), "recomputed")
    assert_same(read(landing(device.take()).read()), wanted)


@pytest.mark.parametrize("kind", [bool, np.int64, np.int32, np.float32, np.float64, np.uint8])
def test_any_kind_of_mask(kind: Any) -> None:
    tensors = random_batch(6)
    wanted = expected(tensors, RECOMPUTED)
    tensors["loss_mask"] = tensors["loss_mask"].astype(kind)
    for measured_by in PATHS.values():
        assert_same(measured_by(tensors), wanted)


def test_a_tensor_that_still_has_its_graph_is_only_read() -> None:
    tensors = as_torch(random_batch(7))
    wanted = accumulated(tensors)
    tensors["train_logprobs"] = tensors["train_logprobs"].requires_grad_() * 1.0
    assert accumulated(tensors) == wanted
    assert tensors["train_logprobs"].requires_grad


@path
def test_packed_tokens_without_sequences(measured_by: Any) -> None:
    tensors = random_batch(8, per_token=True)
    flat = {name: value.reshape(-1) for name, value in tensors.items()}
    assert_same(measured_by(flat), expected(tensors, RECOMPUTED))


@path
@pytest.mark.parametrize(
    ("name", "shape"), [("old_logprobs", (6, 39)), ("entropy", (6,)), ("advantages", (40,)), ("advantages", (1, 1))]
)
def test_a_tensor_of_another_shape_is_named(measured_by: Any, name: str, shape: tuple[int, ...]) -> None:
    tensors = random_batch(9) | {name: np.zeros(shape, dtype=np.float32)}
    with pytest.raises(ValueError, match=f"{name}: shape .* does not fit loss_mask's"):
        measured_by(tensors)


@path
def test_only_what_is_given_is_observed(measured_by: Any) -> None:
    tensors = random_batch(10)
    for given_names, sketches in (
        ((), {}),
        (("old_logprobs",), {"update"}),
        (("rollout_logprobs",), {"update", "mismatch"}),
        (("old_logprobs", "rollout_logprobs"), {"update", "mismatch"}),
    ):
        some = {name: tensors[name] for name in ("train_logprobs", "advantages", "loss_mask", *given_names)}
        got = measured_by(some)
        assert set(got.sketches) == set(sketches)
        assert (got.positive.entropy_tokens, got.negative.entropy_tokens) == (0, 0)
        assert got.positive.tokens > 0


def test_a_device_is_not_asked_for_a_value() -> None:
    """torch's meta device has none: whatever waits for one raises."""
    sums = DeviceSums()
    sums.add(TokenBatch(**{name: value.to("meta") for name, value in as_torch(random_batch(12)).items()}), "sampler")
    assert sums.take().device.type == "meta"


def test_draining_starts_again_from_nothing() -> None:
    accumulator = Accumulator()
    tensors = as_torch(random_batch(11))
    for _ in range(3):
        accumulator.add(TokenBatch(**tensors))
        assert_same(read(accumulator.drain().read()), expected(random_batch(11), RECOMPUTED))
    assert not accumulator.drain().read().any()


def test_packing_keeps_a_vector_as_it_is() -> None:
    accumulator = Accumulator()
    accumulator.add(TokenBatch(**random_batch(12)))
    vector = accumulator.drain().read()
    assert (Packed.of(vector).vector() == vector).all()
