"""Batches of tokens, every way to sum them up, and what plain numpy on the selected tokens says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from trimtab.hooks import native
from trimtab.hooks.accumulate import Accumulator, measure
from trimtab.hooks.accumulate_torch import DeviceSums, landing
from trimtab.hooks.layout import SIZE, measured
from trimtab.hooks.planes import planes
from trimtab.hooks.records import MAX_LOGPROB, NonFinite, SignTotals, StepSummary, TokenBatch
from trimtab.hooks.sketch import SignSketch, Sketch, bin_index

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
    return read(landing(sums.take()).read())


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
        name: np.isfinite(value) & ~((value > np.float32(MAX_LOGPROB)) & (name in LOGPROBS))
        for name, value in values.items()
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
