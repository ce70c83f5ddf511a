"""Scales for whole tensors depend on what else is in the batch; scales for tokens do not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from trimtab.trainer.build import build
from trimtab.trainer.config import validated
from trimtab.trainer.engines import converted
from trimtab.trainer.quant import FORMATS
from trimtab.trainer.rollouts.sampler import Update
from trimtab.trainer.rollouts.torch_sampler import TorchSampler

TENSOR = [name for name in FORMATS if name.startswith("fp8-tensor")]
ROW = [name for name in FORMATS if name.startswith("fp8-row")]


def mismatch(number_format: str) -> Tensor:
    """log p - log q of each sampled token, with one format and one set of weights on both sides."""
    config = validated(
        {
            "task": {"digits": 4},
            "model": {"width": 32, "layers": 2, "heads": 2, "hidden": 64, "keep_head": False},
            "warm_start": {"steps": 60, "batch": 64},
        }
    )
    model, task = build(config)
    sampler = TorchSampler(converted(model, config, number_format), end=task.end, pad=task.pad)
    sampler.sync(Update(weights=model.state_dict(), version=0, number_format=number_format))
    rollout = sampler.generate(
        task.prompts(64, torch.Generator().manual_seed(1)),
        task.response_length,
        head=0,
        temperature=1.0,
        generator=torch.Generator().manual_seed(2),
    )
    trainer = converted(model, config, number_format)
    with torch.no_grad():
        log_p = torch.log_softmax(trainer(rollout.inputs, keep_last=task.response_length), -1)
    scored = log_p.gather(2, rollout.responses[..., None])[..., 0]
    live = task.grade(rollout.prompts, rollout.responses).mask > 0
    return (scored - rollout.logprobs)[live]


@pytest.fixture(autouse=True)
def _one_cache(cache_folder, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_folder))
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", ROW)
def test_with_scales_of_tokens_decoding_gives_the_log_probs_of_a_whole_forward_pass(name):
    # To the bit, but where float32 sums in another order fall to the other side of a rounding boundary.
    assert mismatch(name).abs().median() == 0.0


@pytest.mark.parametrize("name", TENSOR)
def test_with_a_scale_of_the_tensor_it_does_not(name):
    different = mismatch(name)
    assert different.std() > 5e-3
    assert (different == 0.0).float().mean() < 0.1
