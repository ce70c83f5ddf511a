"""Weights that arrive between two tokens of a response, and what becomes of the old keys and values."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine_runs import (
    PAD,
    PROMPTS,
    of_tokens,
    once_at,
    prepared,
    sampled,
    settings,
    shaken,
    trained_logprobs,
    update,
)
from torch import Tensor

from trimtab.trainer.models.huggingface import HuggingFaceLM
from trimtab.trainer.quant import set_format
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import Weights
from trimtab.trainer.rollouts.vllm_sampler import VllmSampler

SWITCH = 12
"""The token before which new weights arrive."""
RARE = 3
"""A token that is hardly ever sampled as the end, so that responses have the switch in their middle."""


def continued(model: HuggingFaceLM, old: Weights, new: Weights, rollout: Rollout, row: int, switch: int) -> Tensor:
    """Log-probs of the tokens of `row` from `switch` on, by new weights after the keys and values of old ones."""
    padding = 0 if PROMPTS.padding is None else int(rollout.prompts.padding[row])
    tokens = torch.cat([rollout.prompts.tokens[row, padding:], rollout.responses[row]])[None]
    start = rollout.prompts.tokens.shape[1] - padding + switch - 1
    set_format(model, "fp32")
    model.eval()
    with torch.no_grad():
        model.load_state_dict(dict(old))
        cache = model.new_cache(1, tokens.shape[1])
        model(tokens[:, :start], cache=cache)
        model.load_state_dict(dict(new))
        logits = [
            model(tokens[:, place : place + 1], cache=cache)[0, -1] for place in range(start, tokens.shape[1] - 1)
        ]
    log_p = torch.log_softmax(torch.stack(logits).float() / 0.8, -1)
    return log_p.gather(1, rollout.responses[row, switch:, None])[:, 0]


@pytest.mark.parametrize("in_flight", ["keep", "drop"])
def test_tokens_behind_the_switch_are_explained_by_the_stated_policy_only(in_flight, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    plain, model = prepared(folder)
    old, new = {name: value.clone() for name, value in plain.state_dict().items()}, shaken(plain.state_dict())
    sampler = VllmSampler(folder, model, settings(dtype="float32"), end=RARE, pad=PAD, in_flight=in_flight)
    try:
        sampler.sync(update(old, 4))
        rollout = sampled(sampler, 32, arrivals=once_at(SWITCH + 1, update(new, 6)))
        assert sampler.version == 6
    finally:
        sampler.close()
    before, behind = rollout.versions == 4, rollout.versions == 6
    assert bool((before | behind).all())
    assert bool((rollout.versions.diff(dim=1) >= 0).all())
    whole = ~(rollout.responses == RARE).any(1)
    assert int(whole.sum()) >= 8
    assert set(before.sum(1)[whole].tolist()) == {SWITCH}
    before, behind = before & whole[:, None], behind & whole[:, None]
    with_old = (of_tokens(trained_logprobs(model, old, rollout, "fp32"), rollout) - rollout.logprobs).abs()
    with_new = (of_tokens(trained_logprobs(model, new, rollout, "fp32"), rollout) - rollout.logprobs).abs()
    control = torch.stack(
        [
            continued(model, old, new, rollout, row, SWITCH) - rollout.logprobs[row, SWITCH:]
            for row in whole.nonzero()[:, 0].tolist()
        ]
    ).abs()
    print(f"{in_flight}: recomputed {float(with_new[behind].mean()):.3g}, continued {float(control.mean()):.3g}")
    assert float(with_old[before].mean()) < 1e-4
    if in_flight == "drop":
        assert float(with_new[behind].mean()) < 1e-4
        assert float(control.mean()) > 0.02
    else:
        # Neither policy's: new weights that go on from what the old ones left.
        assert float(control.mean()) < 1e-4
        assert float(with_new[behind].mean()) > 0.02
    assert float(with_old[behind].mean()) > 0.02
