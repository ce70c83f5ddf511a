"""Sums on a CUDA device: the same as numpy's, without ever waiting for the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trimtab.hooks.accumulate import Accumulator, measure
from trimtab.hooks.layout import measured
from trimtab.hooks.planes import planes
from trimtab.hooks.records import StepSummary, TokenBatch

pytestmark = pytest.mark.gpu


def test_a_device_gives_numpys_sums_and_is_not_waited_for() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    rng = np.random.default_rng(0)
    old = -rng.exponential(1.5, (64, 512)).astype(np.float32)
    no_logprob = np.float32([np.nan, 1.0])
    arrays = {
        "train_logprobs": np.minimum(old + np.float32(0.05) * rng.standard_normal(old.shape, dtype=np.float32), 0),
        "old_logprobs": old,
        "rollout_logprobs": np.where(rng.random(old.shape) < 0.01, rng.choice(no_logprob, old.shape), old),
        "entropy": rng.random(old.shape, dtype=np.float32),
        "advantages": rng.standard_normal(64, dtype=np.float32),
        "loss_mask": rng.random(old.shape) < 0.8,
    }
    batch = TokenBatch(**arrays)
    on_device = TokenBatch(**{name: torch.from_numpy(array).cuda() for name, array in arrays.items()})
    accumulator = Accumulator()
    accumulator.add(on_device)  # the first use of a kernel may wait
    accumulator.drain().read()
    torch.cuda.set_sync_debug_mode("error")
    try:
        accumulator.add(on_device)
        drained = accumulator.drain()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    empty = StepSummary(job="run", attempt=0, step=0)
    got = measured(empty, drained.read())
    want = measured(empty, measure(batch, planes(batch), "recomputed"))
    assert got.nonfinite == want.nonfinite
    for name, sketch in want.sketches.items():
        for ours, theirs in zip(got.sketches[name].signs(), sketch.signs(), strict=True):
            assert (ours.bins, ours.counts) == (theirs.bins, theirs.counts)
            np.testing.assert_allclose(ours.sums, theirs.sums, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got.positive.entropy, want.positive.entropy, rtol=1e-9)
    for ours, theirs in zip((*got.by_position, *got.by_length), (*want.by_position, *want.by_length), strict=True):
        assert (ours.first, ours.tokens) == (theirs.first, theirs.tokens)
        np.testing.assert_allclose((ours.total, ours.absolute), (theirs.total, theirs.absolute), rtol=1e-9, atol=1e-9)
    assert got.sequences.sequences == got.sequences.observed == 64
    assert (got.sequences.ratio_above, got.sequences.mean_above) == (
        want.sequences.ratio_above,
        want.sequences.mean_above,
    )
    np.testing.assert_allclose(got.sequences.ratio_sq, want.sequences.ratio_sq, rtol=1e-9)
