"""The loss of TRL's AsyncGRPOTrainer with the adapter on: the real method, on a trainer that was never started.

Its constructor asks for a vLLM server and kernels of a GPU, so the trainer is made without it, and the model is a
stand-in that returns what the fused head of TRL returns.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import trl_runs as runs
from accelerate import Accelerator
from torch import Tensor
from transformers.trainer_callback import CallbackHandler

from trimtab.hooks.controls import Controls, Liveness
from trimtab.hooks.records import RecordError
from trimtab.hooks.trl import attach

LENGTH = 40


class Model(torch.nn.Module):
    """Log-probs of packed tokens, with gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = torch.nn.Parameter(-torch.rand(LENGTH, generator=torch.Generator().manual_seed(0)) - 0.1)

    def forward(self, input_ids: Tensor, **_: Any) -> Any:
        length = input_ids.shape[1]
        return SimpleNamespace(log_probs=self.scores[None, :length], entropy=0.5 - self.scores[None, :length].detach())


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def trainer() -> Any:
    from trl.experimental.async_grpo import AsyncGRPOTrainer

    made: Any = object.__new__(AsyncGRPOTrainer)
    made.accelerator = Accelerator(cpu=True)
    made.model = Model()
    made.args = SimpleNamespace(max_staleness=4)
    made.callback_handler = CallbackHandler([], made.model, None, None, None)
    made.state = SimpleNamespace(global_step=0)
    made._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
    made.epsilon_low, made.epsilon_high, made.model_version = 0.2, 0.28, 7
    made.aux_loss_enabled, made.current_gradient_accumulation_steps = False, 1
    made._step_forward_tokens = made._step_trained_tokens = made._step_seq_len_weighted = 0.0
    made._step_samples = made._step_forward_s = 0.0
    made.is_deepspeed_enabled = False
    return made


def packed(seed: int = 0) -> dict[str, Tensor]:
    """One row of 40 tokens, of two responses, of which 24 are in the loss."""
    g = torch.Generator().manual_seed(seed)
    index = torch.cat([torch.arange(4, 16), torch.arange(24, 36)])
    ones = torch.ones(1, LENGTH, dtype=torch.long)
    return {
        "attention_mask": ones,
        "input_ids": ones,
        "position_ids": torch.arange(LENGTH)[None],
        "shift_labels": ones,
        "token_index": torch.cat([index, torch.full((6,), -1)])[None],
        "old_log_probs": torch.cat([-torch.rand(24, generator=g) - 0.1, torch.zeros(6)])[None],
        "advantages": torch.cat([torch.full((12,), 1.0), torch.full((12,), -0.5), torch.zeros(6)])[None],
        "segment_id": torch.cat([torch.zeros(12), torch.ones(12), torch.full((6,), -1)]).long()[None],
        "global_n_tokens": torch.tensor([24.0]),
        "global_n_forward_tokens": torch.tensor([40.0]),
        "mean_seq_len": torch.tensor([20.0]),
        "tree_kv_index": torch.full((1, 4), -1),
        "tree_cu_seqlens_q": torch.full((1, 4), -1),
        "tree_cu_seqlens_k": torch.full((1, 4), -1),
        "tree_max_seqlens": torch.ones(1, 2, dtype=torch.long),
    }


def test_the_loss_is_the_same_to_the_bit_and_every_token_of_it_is_reported(trainer: Any) -> None:
    inputs = packed()
    alone = trainer.compute_loss(trainer.model, inputs)
    trainer._metrics["train"]["sample/staleness_mean"].extend([1.0, 2.0])
    attachment = attach(trainer, "memory:", job="run")
    loss = trainer.compute_loss(trainer.model, inputs)
    assert torch.equal(loss, alone)
    ride = next(each for each in trainer.callback_handler.callbacks if hasattr(each, "_ride"))._ride
    ride.end_step(1)
    attachment.detach()
    (summary,) = runs.sent(attachment)
    assert attachment.failures == 0
    assert (summary.tokens, summary.negative.tokens, summary.positive.tokens) == (24, 12, 12)
    assert (summary.staleness, summary.policy_version) == (1.5, 7)
    assert summary.applied == Controls(ratio_reference="sampler", clip_low=0.2, clip_high=0.28, max_staleness=4.0)
    selected = inputs["token_index"][0, :24]
    ratio = (trainer.model.scores.detach()[selected] - inputs["old_log_probs"][0, :24]).double()
    for name in ("update", "mismatch"):
        assert summary.sketches[name].sum("log_ratio") == pytest.approx(float(ratio.sum()), rel=1e-6)
    entropy = 0.5 - trainer.model.scores.detach()[selected]
    assert summary.negative.entropy + summary.positive.entropy == pytest.approx(float(entropy.sum()), rel=1e-6)
    assert summary.scalars["loss"] == pytest.approx(float(alone))


def test_clip_bounds_are_live(trainer: Any) -> None:
    attachment = attach(trainer, "memory:", job="run")
    runs.wish(attachment, 1, clip_low=0.01, clip_high=0.01)
    attachment.end_step(step=1)
    inputs = packed()
    found = trainer.compute_loss(trainer.model, inputs)
    ratio = np.exp(trainer.model.scores.detach()[inputs["token_index"][0, :24]] - inputs["old_log_probs"][0, :24])
    total = 0.0
    for r, a in zip(ratio.tolist(), inputs["advantages"][0, :24].tolist(), strict=True):
        total -= min(r * a, min(max(r, 0.99), 1.01) * a)
    assert float(found) == pytest.approx(total / 24, rel=1e-5)
    attachment.detach()
    assert (trainer.epsilon_low, trainer.epsilon_high) == (0.2, 0.28)


@pytest.mark.parametrize(
    ("control", "value", "reason"),
    [
        ("importance", "tis", "importance: absent in this trainer: the asynchronous loss has no importance weights"),
        ("centering", True, "centering: absent in this trainer: the rollout worker asks vLLM for the sampled token"),
        ("max_staleness", 1.0, "max_staleness: restart in this trainer: TRL's queue reads it when it is made"),
        ("ratio_reference", "recomputed", "ratio_reference: restart in this trainer: nothing else is recorded"),
    ],
)
def test_what_it_cannot_do_it_refuses_with_the_reason(trainer: Any, control: str, value: Any, reason: str) -> None:
    attachment = attach(trainer, "memory:", job="run")
    refusal = attachment.emitter.capabilities.refusal(control, value)
    assert refusal is not None
    assert refusal.startswith(reason)
    assert attachment.emitter.capabilities.controls["clip_low"] is Liveness.LIVE
    attachment.detach()


def test_head_and_shadow_are_refused(trainer: Any) -> None:
    with pytest.raises(RecordError, match="head, shadow: the asynchronous trainer has neither"):
        attach(trainer, "memory:", job="run", head=8)
