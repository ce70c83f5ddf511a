"""Engines that are started in other ways: a tied head, activations in BF16, keys and values in FP8."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engine_runs import END, PAD, differences, of_tokens, prepared, sampled, settings, shaken, trained_logprobs, update

from trimtab.trainer.rollouts.probe import Probe
from trimtab.trainer.rollouts.sampler import SyncError
from trimtab.trainer.rollouts.vllm_sampler import VllmSampler

SPREADS = {"fp32": 0.03, "bf16": 0.03, "fp8-row": 0.25, "nvfp4": 0.6}
"""Largest standard deviation of the log-ratio where activations between layers are BF16, nats."""


@pytest.mark.parametrize("refreshed", [False, True])
def test_a_head_tied_to_the_embedding_goes_on_with_old_weights_unless_refreshed_and_the_probe_says_so(
    refreshed, tmp_path: Path
) -> None:
    """vLLM 0.32 on a CPU: the layer-wise reload never comes to a tied head, since no weight of its own arrives."""
    folder = tmp_path / "model"
    plain, model = prepared(folder, tied=True)
    weights = shaken(plain.state_dict())
    sampler = VllmSampler(folder, model, settings(dtype="float32"), end=END, pad=PAD, refresh_tied_head=refreshed)
    try:
        sampler.sync(update(plain.state_dict(), 1, "nvfp4"))
        if not refreshed:
            with pytest.raises(SyncError, match="a head tied to the embedding is the known case"):
                sampler.sync(update(weights, 2, "nvfp4"))
            with pytest.raises(SyncError, match="sync before sampling"):
                sampled(sampler)
            return
        sampler.sync(update(weights, 2, "nvfp4"))
        rollout = sampled(sampler)
        difference = of_tokens(trained_logprobs(model, weights, rollout, "nvfp4"), rollout) - rollout.logprobs
        assert float(difference[rollout.logprobs != 0].abs().median()) < 2e-5
    finally:
        sampler.close()


@pytest.mark.slow
def test_where_activations_are_bf16_the_spread_is_the_stated_one(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    plain, model = prepared(folder)
    spread = {}
    sampler = VllmSampler(folder, model, settings(), end=END, pad=PAD)
    try:
        for number_format in SPREADS:
            sampler.sync(update(plain.state_dict(), 1, number_format))
            rollout = sampled(sampler, 48)
            tokens, _ = differences(rollout, trained_logprobs(model, plain.state_dict(), rollout, number_format))
            spread[number_format] = float(tokens.std())
            assert abs(float(tokens.mean())) < 0.3 * SPREADS[number_format]
    finally:
        sampler.close()
    print({name: round(value, 4) for name, value in spread.items()})
    assert all(0 < spread[name] < most for name, most in SPREADS.items()), spread
    assert spread["bf16"] < spread["fp8-row"] < spread["nvfp4"]


@pytest.mark.parametrize("kv_format", ["fp8", "fp8-e5m2"])
def test_a_cache_in_fp8_rounds_towards_zero_and_stays_what_it_was_started_in(kv_format: str, tmp_path: Path) -> None:
    """vLLM 0.32 on a CPU: with that known nothing is left of the difference to the trainer, which rounds to nearest."""
    folder = tmp_path / "model"
    plain, model = prepared(folder)
    now = replace(update(plain.state_dict(), 1, "nvfp4"), kv_format=kv_format)
    sampler = VllmSampler(folder, model, settings(dtype="float32"), end=END, pad=PAD, kv_format=kv_format)
    try:
        sampler.sync(now)
        assert sampler.probed < 1e-5
        probe = Probe(model, dtype="float32")
        exact, live = probe.expected(now, exact=True), probe.expected(now)
        assert exact.tolerances[1] < 1e-4
        nearest, truncated = ((sampler.scores(probe.tokens) - each).abs() for each in live.logprobs)
        print(
            f"{kv_format}: {float(nearest.mean()):.3g} nats from nearest, {float(truncated.mean()):.3g} from truncated"
        )
        assert float(truncated.median()) < 1e-5
        assert float(nearest.median()) > 0.02
        with pytest.raises(SyncError, match=r"kv_format: 'none' is not what vLLM was started with"):
            sampler.sync(update(plain.state_dict(), 1))
    finally:
        sampler.close()
