"""TRL 1.16 itself: a real GRPOTrainer and its loss, on log-probs that no model has computed."""

from __future__ import annotations

import copy
import functools
import tempfile
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from trl_runs import Sampler, grpo

from rigs.base import B, Batch, Rig, Step, T
from trimtab.hooks.trl import attach


@functools.cache
def trainer() -> Any:
    """What the rigs of this process have copies of, since making one takes a second."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: Any = grpo(Path(tempfile.mkdtemp()), sampler=Sampler(), steps_per_generation=1)
    made.model.train()
    made.current_gradient_accumulation_steps = 1
    return made


def copied(original: Any) -> Any:
    """A trainer of the same model that shares nothing that a step or an adapter changes."""
    made = copy.copy(original)
    for name in ("args", "state", "control", "callback_handler"):
        setattr(made, name, copy.copy(getattr(original, name)))
    made.callback_handler.callbacks = list(original.callback_handler.callbacks)
    made._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
    return made


class TrlRig(Rig):
    first_step = 1
    by_environment = False

    def __init__(self) -> None:
        super().__init__()
        self.trainer = copied(trainer())
        self._batch: Batch | None = None
        self.trainer._get_per_token_logps_and_entropies = self._scored

    def _scored(
        self,
        model: Any,  # noqa: ARG002
        input_ids: Tensor,  # noqa: ARG002
        attention_mask: Tensor,  # noqa: ARG002
        logits_to_keep: int,  # noqa: ARG002
        **_: Any,
    ) -> tuple[Tensor, Tensor, None]:
        assert self._batch is not None
        delta = self.trainer.args.delta
        self.used = {
            "low": self.trainer.epsilon_low,
            "high": self.trainer.epsilon_high,
            "dual": float("inf") if delta is None else delta,
        }
        return self._batch.train, self._batch.entropy, None

    def attach(self, url: str = "memory:", job: str = "run") -> None:
        self.attachment = attach(self.trainer, url, job=job)

    def step(self) -> Step:
        self._batch = batch = self.batch()
        ids = torch.zeros(B, T, dtype=torch.long)
        inputs = {
            "prompt_ids": ids,
            "prompt_mask": ids,
            "completion_ids": ids,
            "completion_mask": batch.mask,
            "advantages": batch.advantages,
            "num_items_in_batch": batch.mask.sum(),
            "old_per_token_logps": batch.old,
            "sampling_per_token_logps": batch.rollout,
        }
        loss = self.trainer.compute_loss(self.trainer.model, inputs)
        loss.backward()
        trained = self.trainer
        trained._step += 1
        trained.state.global_step += 1
        trained.callback_handler.on_step_end(trained.args, trained.state, trained.control)
        trained._metrics["train"].clear()  # as TRL does whenever it logs
        assert batch.shift.grad is not None
        return Step(loss=loss.detach(), gradient=batch.shift.grad)
