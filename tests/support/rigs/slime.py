"""Stand-in for slime at 624b824a8 and miles at 31f1ca961: `policy_loss_function`, its scores and its function paths."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rigs.base import Batch, Rig, Step
from trimtab.hooks import slime


def arguments(**given: Any) -> SimpleNamespace:
    """A job's arguments, as far as the loss reads them."""
    default = {
        "eps_clip": 0.2,
        "eps_clip_high": 0.2,
        "eps_clip_c": None,
        "use_tis": True,
        "tis_clip": 2.0,
        "tis_clip_low": 0.0,
        "get_mismatch_metrics": False,
        "use_rollout_logprobs": False,
        "use_kl_loss": False,
        "kl_loss_coef": 0.0,
        "recompute_loss_function": False,
        "custom_tis_function_path": "trimtab.hooks.slime.tis",
    }
    return SimpleNamespace(**(default | given))


class SlimeRig(Rig):
    path, function = slime.SLIME, staticmethod(slime.loss)

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.args = arguments(**given)
        self.module = self.install(
            self.path,
            policy_loss_function=self.policy_loss_function,
            get_log_probs_and_entropy=self.get_log_probs_and_entropy,
        )
        slime.reset()
        self.hooked = False
        self.rollout_id = 0

    def get_log_probs_and_entropy(self, logits: Any, **given: Any) -> tuple[None, dict[str, Any]]:
        del given
        return None, {"log_probs": logits["log_probs"], "entropy": logits["entropy"]}

    def policy_loss_function(
        self, args: Any, batch: dict[str, Any], logits: Any, sum_of_sample_mean: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        _, scores = self.module.get_log_probs_and_entropy(logits, args=args, with_entropy=True)
        new, advantages = torch.cat(scores["log_probs"]), torch.cat(batch["advantages"])
        old = torch.cat(batch["rollout_log_probs"] if args.use_rollout_logprobs else batch["log_probs"])
        loss = self.clipped(new - old, advantages, low=args.eps_clip, high=args.eps_clip_high, dual=args.eps_clip_c)
        metrics: dict[str, Any] = {}
        if args.get_mismatch_metrics or args.use_tis:
            assert "rollout_log_probs" in batch, "rollout_log_probs must be provided for TIS"
            loss, _, metrics = slime.tis(
                args=args,
                pg_loss=loss,
                train_log_probs=batch["log_probs"],
                rollout_log_probs=batch["rollout_log_probs"],
                loss_masks=batch["loss_masks"],
                total_lengths=batch["total_lengths"],
                response_lengths=batch["response_lengths"],
            )
        return sum_of_sample_mean(loss), metrics

    def attach(self, url: str = "memory:", job: str = "run") -> None:
        self.environment(TRIMTAB_URL=url, TRIMTAB_JOB=job, TRIMTAB_ATTEMPT="1")
        self.hooked = True

    def step(self) -> Step:
        if self.hooked:
            slime.before_train_step(self.args, self.rollout_id, 0, [], None, None)
            self.attachment = slime._PROCESS.attached.made()
        self.rollout_id += 1
        batch = self.batch()
        function = self.function if self.hooked else self.module.policy_loss_function
        loss, _ = function(self.args, _lists(batch), _logits(batch), lambda values: values.sum() / len(values))
        loss.backward()
        assert batch.shift.grad is not None
        return Step(loss=loss.detach(), gradient=batch.shift.grad)

    def close(self) -> None:
        slime.reset()
        super().close()


class MilesRig(SlimeRig):
    path, function = slime.MILES, staticmethod(slime.miles_loss)


def _lists(batch: Batch) -> dict[str, Any]:
    """A list of responses of different lengths for each tensor."""
    lengths = batch.mask.sum(1).long().tolist()

    def cut(tensor: Tensor) -> list[Tensor]:
        return [row[:length] for row, length in zip(tensor, lengths, strict=True)]

    return {
        "log_probs": cut(batch.old),
        "rollout_log_probs": cut(batch.rollout),
        "advantages": cut(batch.advantages),
        "loss_masks": cut(batch.mask),
        "total_lengths": lengths,
        "response_lengths": lengths,
    }


def _logits(batch: Batch) -> dict[str, Any]:
    lengths = batch.mask.sum(1).long().tolist()
    new = batch.train
    return {
        "log_probs": [row[:length] for row, length in zip(new, lengths, strict=True)],
        "entropy": [row[:length] for row, length in zip(batch.entropy, lengths, strict=True)],
    }
