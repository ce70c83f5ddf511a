"""What is summed up, against plain numpy on the selected tokens, for every path: numpy, compiled, and any device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trimtab.hooks import native
from trimtab.hooks.accumulate import Accumulator, measure
from trimtab.hooks.accumulate_torch import DeviceSums
from trimtab.hooks.layout import SIZE, Packed, measured
from trimtab.hooks.planes import planes
from trimtab.hooks.records import NonFinite, SignTotals, StepSummary, TokenBatch
from trimtab.hooks.sketch import ZERO_BIN, SignSketch, Sketch, bin_index

LOGPROBS = ("train_logprobs", "old_logprobs", "rollout_logprobs", "shadow_train_logprobs", "shadow_old_logprobs")


def random_batch(
    seed: int, shape: tuple[int, int] = (6, 40), spread: float = 0.05, per_token: bool = False
) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    base = -rng.exponential(1.5, shape) - 5 * spread
    tensors = {name: np.minimum(base + spread * rng.standard_normal(shape), 0).astype(np.float32) for name in LOGPROBS}
    signs = rng.choice([-1.0, 0.0, 1.0], shape if per_token else shape[0])
    return {
        **tensors,
        "entropy": rng.exponential(1.0, shape).astype(np.float32),
        "advantages": (signs * rng.exponential(1.0, signs.shape)).astype(np.float32),
        "loss_mask": rng.random(shape) < 0.7,
    }


def poisoned(tensors: dict[str, Any], seed: int) -> dict[str, Any]:
    """NaN, both infinities and positive numbers in every tensor, masked and live."""
    rng = np.random.default_rng(seed)
    out = {name: np.array(value) for name, value in tensors.items()}
    for name, value in out.items():
        if name != "loss_mask":
            for kind in (np.nan, np.inf, -np.inf, 1.0, 2e-6, 5e-7):
                value.reshape(-1)[rng.integers(0, value.size, 1 if name == "advantages" else 5)] = kind
    return out


def as_torch(tensors: dict[str, Any]) -> dict[str, Any]:
    return {name: torch.from_numpy(np.array(value)) for name, value in tensors.items()}


def read(vector: np.ndarray) -> StepSummary:
    return measured(StepSummary(job="run", attempt=0, step=0), vector)


def accumulated(*batches: dict[str, Any], reference: Any = "recomputed") -> StepSummary:
    accumulator = Accumulator()
    for tensors in batches:
        accumulator.add(TokenBatch(**tensors), reference)
    return read(accumulator.drain().read())


def by_reference(tensors: dict[str, Any], reference: Any = "recomputed") -> StepSummary:
    batch = TokenBatch(**tensors)
    return read(measure(batch, planes(batch), reference))


def compiled(tensors: dict[str, Any], reference: Any = "recomputed") -> StepSummary:
    function = native.LOADER.load(wait=True).measure
    if function is None:
        pytest.skip(native.LOADER.load().reason)
    vector, batch = np.zeros(SIZE), TokenBatch(**tensors)
    native.NativeSums(function).add(vector, batch, planes(batch), reference)
    return read(vector)


def on_device(tensors: dict[str, Any], reference: Any = "recomputed") -> StepSummary:
    """The path for accelerators, which runs on any device."""
    sums = DeviceSums()
    sums.add(TokenBatch(**as_torch(tensors)), reference)
    return read(sums.drain().read())


def from_tensors(tensors: dict[str, Any], reference: Any = "recomputed") -> StepSummary:
    return accumulated(as_torch(tensors), reference=reference)


def expected_sign(log_ratio: np.ndarray, tokens: np.ndarray) -> SignSketch:
    x = log_ratio[tokens]
    bins, counts = np.unique(bin_index(x), return_counts=True)
    y = np.clip(x.astype(np.float64), -20, 20)
    ratio = np.exp(y)
    sums = (y.sum(), (y**2).sum(), ratio.sum(), (ratio**2).sum(), (np.expm1(y) - y).sum())
    return SignSketch(bins=tuple(bins.tolist()), counts=tuple(counts.tolist()), sums=tuple(map(float, sums)))


def expected(tensors: dict[str, Any], pairs: dict[str, tuple[str, str]]) -> StepSummary:
    live = np.asarray(tensors["loss_mask"]) != 0
    advantages = np.asarray(tensors["advantages"])
    advantages = np.broadcast_to(advantages[:, None] if advantages.ndim == 1 else advantages, live.shape)
    values = {name: np.asarray(tensors[name]) for name in (*LOGPROBS, "entropy")} | {"advantages": advantages}
    usable = {
        name: np.isfinite(value) & ~((value > np.float32(1e-6)) & (name in LOGPROBS)) for name, value in values.items()
    }
    counted = live & usable["advantages"]
    masks = [counted & (advantages < 0), counted & (advantages == 0), counted & (advantages > 0)]
    sketches = {}
    for name, (top, bottom) in pairs.items():
        with np.errstate(invalid="ignore"):
            log_ratio = values[top] - values[bottom]
        signs = [expected_sign(log_ratio, mask & usable[top] & usable[bottom]) for mask in masks]
        sketches[name] = Sketch(negative=signs[0], zero=signs[1], positive=signs[2])
    totals = []
    for mask in masks:
        entropy = values["entropy"][mask & usable["entropy"]].astype(np.float64)
        totals.append(
            SignTotals(
                tokens=int(mask.sum()),
                advantage_abs=float(np.abs(advantages[mask].astype(np.float64)).sum()),
                entropy_tokens=entropy.size,
                entropy=float(entropy.sum()),
                entropy_sq=float((entropy**2).sum()),
            )
        )
    nonfinite = {
        name: NonFinite(
            nan=int((np.isnan(value) & live).sum()),
            posinf=int(((value == np.inf) & live).sum()),
            neginf=int(((value == -np.inf) & live).sum()),
            masked=int((~np.isfinite(value) & ~live).sum()),
            invalid=int((np.isfinite(value) & ~usable[name] & live).sum()),
        )
        for name, value in values.items()
    }
    nonfinite = {name: counts for name, counts in nonfinite.items() if counts != NonFinite()}
    return StepSummary(
        job="run",
        attempt=0,
        step=0,
        sketches=sketches,
        negative=totals[0],
        zero=totals[1],
        positive=totals[2],
        nonfinite=nonfinite,
    )


def assert_same(actual: StepSummary, wanted: StepSummary, relative: float = 1e-6) -> None:
    """Counts exactly; sums to `relative` of the sum of absolute values, which the sum of squares bounds."""
    assert actual.nonfinite == wanted.nonfinite
    assert list(actual.sketches) == list(wanted.sketches)
    for name, sketch in wanted.sketches.items():
        for got, want in zip(actual.sketches[name].signs(), sketch.signs(), strict=True):
            assert (got.bins, got.counts) == (want.bins, want.counts)
            size = np.array(want.sums)
            size[0] = np.sqrt(want.n * want.sums[1])
            np.testing.assert_array_less(np.abs(np.array(got.sums) - want.sums), relative * size + 1e-12)
    for got_total, want_total in zip(
        (actual.negative, actual.zero, actual.positive), (wanted.negative, wanted.zero, wanted.positive), strict=True
    ):
        assert (got_total.tokens, got_total.entropy_tokens) == (want_total.tokens, want_total.entropy_tokens)
        np.testing.assert_allclose(
            [got_total.advantage_abs, got_total.entropy, got_total.entropy_sq],
            [want_total.advantage_abs, want_total.entropy, want_total.entropy_sq],
            rtol=relative,
        )


RECOMPUTED = {
    "update": ("train_logprobs", "old_logprobs"),
    "mismatch": ("old_logprobs", "rollout_logprobs"),
    "shadow": ("shadow_train_logprobs", "shadow_old_logprobs"),
}
SAMPLER = RECOMPUTED | {"update": ("train_logprobs", "rollout_logprobs")}
PATHS = {"numpy": by_reference, "compiled": compiled, "cpu tensors": from_tensors, "any device": on_device}
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
    ("first", "counts"), [(1.0, NonFinite(invalid=1)), (2e-6, NonFinite(invalid=1)), (np.nan, NonFinite(nan=1))]
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
    train = np.float32([[5e-7, 1.0, -1.0]])
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
    assert_same(read(device.drain().read()), wanted)


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


@pytest.mark.parametrize("compiler", ["/nowhere/cc", "false"])
def test_without_a_compiler_the_work_is_done_by_numpy(
    compiler: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("trimtab.hooks.accumulate.LOADER", loader := native.Loader())
    loaded = loader.load(wait=True)
    assert loaded.measure is None
    assert loaded.reason
    assert_same(accumulated(random_batch(13)), expected(random_batch(13), RECOMPUTED), relative=1e-14)


def test_until_the_compiler_is_done_the_work_is_done_by_numpy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A compiler that takes its time makes no step wait, and its library is taken once it is there."""
    gate, compiler = tmp_path / "gate", tmp_path / "slow-cc"
    compiler.write_text(f'#!/bin/sh\nwhile [ ! -e {gate} ]; do sleep 0.01; done\nexec cc "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("trimtab.hooks.accumulate.LOADER", loader := native.Loader())
    accumulator = Accumulator()
    accumulator.add(TokenBatch(**random_batch(14)))
    assert loader.load().reason == "being compiled"
    first = accumulator.drain().read().copy()
    gate.touch()
    loader.load(wait=True)
    accumulator.add(TokenBatch(**random_batch(14)))
    np.testing.assert_allclose(accumulator.drain().read(), first, rtol=1e-6)
