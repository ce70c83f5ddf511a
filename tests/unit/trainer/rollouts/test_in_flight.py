"""Weights that arrive while responses are half done, and what becomes of the old keys and values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from trimtab.trainer.config import RunConfig
from trimtab.trainer.models.decoder import DecoderLM
from trimtab.trainer.quant import Recipe, convert
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import InFlight, Update
from trimtab.trainer.rollouts.torch_sampler import TorchSampler
from trimtab.trainer.tasks.running_sum import END, PAD, RunningSum
from trimtab.trainer.warm_start import build_decoder, warm_weights

SWITCH = 2
"""The token before which new weights arrive."""


def model_of(config: RunConfig, weights: dict[str, Tensor]) -> DecoderLM:
    model = build_decoder(config)
    convert(model, Recipe(name="test", format="fp32", keep_format="fp32"))
    model.load_state_dict(weights)
    return model.eval().requires_grad_(False)


def sampled(config: RunConfig, in_flight: InFlight) -> tuple[Rollout, dict[str, Tensor], dict[str, Tensor]]:
    """A rollout into which other weights came, the old weights, and the new."""
    old = warm_weights(config)
    generator = torch.Generator().manual_seed(5)
    new = {name: value + 0.2 * torch.randn(value.shape, generator=generator) for name, value in old.items()}
    sampler = TorchSampler(model_of(config, old), end=END, pad=PAD, in_flight=in_flight)
    sampler.sync(Update(weights=old, version=4, number_format="fp32"))
    asked = 0

    def arrivals() -> Update | None:
        nonlocal asked
        asked += 1
        return Update(weights=new, version=6, number_format="fp32") if asked == SWITCH else None

    task = RunningSum(digits=3)
    rollout = sampler.generate(
        task.prompts(32, torch.Generator().manual_seed(1)),
        task.response_length,
        head=3,
        temperature=1.0,
        generator=torch.Generator().manual_seed(2),
        arrivals=arrivals,
    )
    assert sampler.version == 6
    return rollout, old, new


def gathered(logits: Tensor, rollout: Rollout) -> Tensor:
    return torch.log_softmax(logits, -1).gather(2, rollout.responses.unsqueeze(2)).squeeze(2)


@pytest.mark.parametrize("in_flight", ["keep", "drop"])
def test_every_token_has_the_version_that_sampled_it(tiny: RunConfig, in_flight: InFlight) -> None:
    rollout, old, _ = sampled(tiny, in_flight)
    length = rollout.responses.shape[1]
    assert rollout.versions.tolist() == [[4] * SWITCH + [6] * (length - SWITCH)] * 32
    before = gathered(model_of(tiny, old)(rollout.inputs, keep_last=length), rollout)[:, :SWITCH]
    torch.testing.assert_close(rollout.logprobs[:, :SWITCH], before, atol=1e-5, rtol=0)


def test_dropped_keys_and_values_leave_the_new_policy(tiny: RunConfig) -> None:
    rollout, _, new = sampled(tiny, "drop")
    length = rollout.responses.shape[1]
    expected = gathered(model_of(tiny, new)(rollout.inputs, keep_last=length), rollout)
    live = RunningSum(digits=3).grade(rollout.prompts, rollout.responses).mask[:, SWITCH:] > 0
    torch.testing.assert_close(rollout.logprobs[:, SWITCH:][live], expected[:, SWITCH:][live], atol=1e-5, rtol=0)


def test_kept_keys_and_values_are_of_neither_policy(tiny: RunConfig) -> None:
    """The new weights, reading on from what the old ones left in the cache, explain the tokens; neither alone does."""
    rollout, old, new = sampled(tiny, "keep")
    length, width = rollout.responses.shape[1], rollout.prompts.tokens.shape[1]
    live = RunningSum(digits=3).grade(rollout.prompts, rollout.responses).mask[:, SWITCH:] > 0
    recorded = rollout.logprobs[:, SWITCH:][live]
    read = width + SWITCH - 1
    before, after = model_of(tiny, old), model_of(tiny, new)
    cache = before.new_cache(32, width + length)
    before(rollout.inputs[:, :read], cache=cache)
    steps = [after(rollout.inputs[:, place : place + 1], cache=cache) for place in range(read, width + length - 1)]
    continued = torch.log_softmax(torch.cat(steps, 1), -1)
    tokens = rollout.responses[:, SWITCH:].unsqueeze(2)
    torch.testing.assert_close(recorded, continued.gather(2, tokens).squeeze(2)[live], atol=1e-5, rtol=0)
    for model in (before, after):
        alone = gathered(model(rollout.inputs, keep_last=length), rollout)[:, SWITCH:][live]
        assert (recorded - alone).abs().mean() > 0.05
