"""vLLM and the trainer say the same of the same tokens: to rounding in float32, within a stated spread in BF16."""

from __future__ import annotations

import pytest
import torch
from engine_runs import END, PAD, differences, prepared, sampled, shaken, trained_logprobs, update

FORMATS = ("fp32", "bf16", "fp8-row", "fp8-block", "mxfp8", "nvfp4", "nvfp4-46")


@pytest.mark.parametrize("number_format", FORMATS)
def test_in_float32_the_log_probs_are_the_trainers_in_every_format(keeping, number_format, tmp_path) -> None:
    plain, model = prepared(tmp_path / "model")
    weights = shaken(plain.state_dict(), seed=FORMATS.index(number_format))
    keeping.sync(update(weights, 7, number_format))
    rollout = sampled(keeping)
    log_p = trained_logprobs(model, weights, rollout, number_format)
    tokens, heads = differences(rollout, log_p)
    assert len(tokens) > 100
    # The same grid, so what is left is float32 rounding, and now and then a value that it tips over into the next code.
    assert float(tokens.abs().median()) < 2e-5
    assert float(tokens.std()) < 0.02
    assert float(heads.abs().median()) < 2e-5
    assert keeping.engine == rollout.engine
    assert rollout.engine.endswith("native" if number_format == "fp32" else "emulated")


def test_the_head_is_the_most_probable_tokens_in_order_and_the_sampled_one_apart(keeping, tmp_path) -> None:
    plain, model = prepared(tmp_path / "model")
    keeping.sync(update(plain.state_dict(), 1))
    rollout = sampled(keeping, head=8)
    assert rollout.head_ids.shape == rollout.head_logprobs.shape == (*rollout.responses.shape, 8)
    top = trained_logprobs(model, plain.state_dict(), rollout, "fp32").topk(8)
    live = rollout.logprobs != 0
    assert torch.equal(rollout.head_ids[live], top.indices[live])
    outside = ~(rollout.head_ids == rollout.responses[..., None]).any(-1)
    assert bool(outside[live].any()), "no token was sampled from outside of the head: the test says nothing"
    assert rollout.entropy is None
    assert rollout.versions.dtype == torch.int64
    assert bool((rollout.versions == 1).all())


def test_the_same_generator_gives_the_same_rollout_and_another_another(keeping, tmp_path) -> None:
    plain, _ = prepared(tmp_path / "model")
    keeping.sync(update(plain.state_dict(), 1))
    first, again, other = sampled(keeping), sampled(keeping), sampled(keeping, seed=2)
    assert torch.equal(first.responses, again.responses)
    assert torch.equal(first.logprobs, again.logprobs)
    assert not torch.equal(first.responses, other.responses)


def test_a_response_ends_with_the_end_and_is_padded_after_it(keeping, tmp_path) -> None:
    plain, _ = prepared(tmp_path / "model")
    keeping.sync(update(plain.state_dict(), 1))
    rollout = sampled(keeping, 64, head=0)
    assert rollout.head_ids.shape == (12, 64, 0)
    ended = (rollout.responses == END).any(1)
    assert bool(ended.any())
    for row in rollout.responses[ended].tolist():
        stop = row.index(END)
        assert set(row[stop + 1 :]) <= {PAD}
