"""Weights that vLLM does not take over whole, or does not compute with, stop the sampling."""

from __future__ import annotations

import pytest
import torch
from engine_runs import of_tokens, prepared, sampled, shaken, trained_logprobs, update

from trimtab.trainer.config import ConfigError
from trimtab.trainer.rollouts.sampler import SyncError

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


def test_the_probe_finds_a_weight_that_was_left_as_it_was(keeping, tmp_path) -> None:
    plain, _ = prepared(tmp_path / "model")
    keeping.sync(update(plain.state_dict(), 1))
    assert keeping.probed < 1e-5
    # A trainer that goes on while the engine has one matrix of before: told by asking for the log-probs of others.
    stale = {**shaken(plain.state_dict()), QUERY: plain.state_dict()[QUERY]}
    keeping.sync(update(stale, 2))
    with pytest.raises(SyncError, match=r"does not compute with these weights: the log-probs of 63 fixed tokens are"):
        keeping._probe.check(keeping.scores(keeping._probe.tokens), update(shaken(plain.state_dict()), 2))


def test_sequences_beyond_the_engine_are_refused_with_the_field(keeping, tmp_path) -> None:
    plain, _ = prepared(tmp_path / "model")
    keeping.sync(update(plain.state_dict(), 1))
    with pytest.raises(ConfigError, match=r"task.response_length: the longest prompt and response are 193 tokens"):
        sampled(keeping, 193 - 6)
    assert torch.equal(sampled(keeping).versions, torch.ones(12, 24, dtype=torch.int64))
