"""Weights that vLLM does not take over whole, or does not compute with, stop the sampling."""

from __future__ import annotations

import pytest
import torch
from engine_runs import of_tokens, prepared, sampled, shaken, trained_logprobs, update

from trimtab.trainer.config import ConfigError
from trimtab.trainer.rollouts.sampler import SyncError, Update

QUERY = "causal_lm.model.layers.1.self_attn.q_proj.weight"


def test_nothing_is_sampled_before_weights_came(keeping) -> None:
    if keeping.version >= 0:
        pytest.skip("another test was first")
    with pytest.raises(SyncError, match="sync before sampling"):
        sampled(keeping)


@pytest.mark.parametrize("fault", ["missing", "shape", "format"])
def test_an_update_that_is_not_whole_stops_the_sampling_until_one_is(keeping, fault, tmp_path) -> None:
    plain, model = prepared(tmp_path / "model")
    weights = shaken(plain.state_dict())
    broken = dict(weights)
    if fault == "missing":
        del broken[QUERY]
        expected = r"version 2 was not taken over: weights: 1 are missing, model.layers.1.self_attn.q_proj.weight first"
    elif fault == "shape":
        broken[QUERY] = broken[QUERY][:, :64]
        expected = r"version 2 was not taken over: weights: model.layers.1.self_attn.q_proj.weight"
    else:
        expected = r"version 2 was not taken over: format: 'nvfp5' is none of"
    keeping.sync(update(plain.state_dict(), 1))
    with pytest.raises(SyncError, match=expected):
        keeping.sync(update(broken, 2, "nvfp5" if fault == "format" else "fp32"))
    with pytest.raises(SyncError, match="the last weights were not taken over"):
        sampled(keeping)
    keeping.sync(update(weights, 3, "nvfp4"))
    rollout = sampled(keeping)
    difference = of_tokens(trained_logprobs(model, weights, rollout, "nvfp4"), rollout) - rollout.logprobs
    assert float(difference[rollout.logprobs != 0].abs().median()) < 2e-5


def test_a_single_old_matrix_is_found_in_float32_where_the_live_format_hides_it(keeping, tmp_path) -> None:
    plain, _ = prepared(tmp_path / "model")
    old = plain.state_dict()
    new = {**old, QUERY: shaken(old)[QUERY]}
    verification = keeping._verification
    keeping.sync(update(old, 1, "fp8-tensor"))
    assert keeping.probed < 1e-5
    with verification.taking_over(update(new, 2, "fp8-tensor"), idle=False):
        keeping._take_over(update(old, 2, "fp8-tensor"))
    verification.require()
    with pytest.raises(SyncError, match=r"does not compute with these weights: .* where fp32 in float32 explains"):
        verification.settle()
    assert keeping.engine == "fp8-emulated"
    with pytest.raises(SyncError, match="sync before sampling"):
        sampled(keeping)
    keeping.sync(update(new, 3, "fp8-tensor"))
    assert keeping.probed < 1e-5


def test_weights_that_arrived_in_flight_are_verified_in_float32_before_the_rollout_is_given_away(
    keeping, tmp_path
) -> None:
    plain, _ = prepared(tmp_path / "model")
    old, new = plain.state_dict(), shaken(plain.state_dict())
    keeping.sync(update(old, 1, "fp8-row"))
    probed = []

    def arrivals() -> Update | None:
        probed.append(keeping.probed)
        return update(new, 2, "fp8-row") if len(probed) == 5 else None

    rollout = sampled(keeping, arrivals=arrivals)
    assert set(rollout.versions.flatten().tolist()) == {1, 2}
    assert probed[5] != keeping.probed < 1e-5
    assert rollout.engine == keeping.engine == "fp8-emulated"


def test_sequences_beyond_the_engine_are_refused_with_the_field(keeping, tmp_path) -> None:
    plain, _ = prepared(tmp_path / "model")
    keeping.sync(update(plain.state_dict(), 1))
    with pytest.raises(ConfigError, match=r"task.response_length: the longest prompt and response are 193 tokens"):
        sampled(keeping, 193 - 6)
    assert torch.equal(sampled(keeping).versions, torch.ones(12, 24, dtype=torch.int64))
