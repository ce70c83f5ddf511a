"""Stand-in for NeMo-RL at 7ea279abf: `ClippedPGLossFn` and `Policy.train`, as far as the adapter touches them."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rigs.base import HereCaller, Rig, Step
from trimtab.hooks import nemo_rl

CLIPPED: dict[str, Any] = {}
"""The rig whose loss it is: the loss object itself is sent to the workers as bytes."""


class ClippedPGLossFn:
    """Its attributes are read at every call."""

    loss_type, input_type = "token_level", "logprob"

    def __init__(self) -> None:
        self.ratio_clip_min, self.ratio_clip_max, self.ratio_clip_c = 0.2, 0.2, None
        self.reference_policy_kl_penalty = 0
        self.use_importance_sampling_correction = True
        self.truncated_importance_sampling_type: str | None = "tis"
        self.truncated_importance_sampling_ratio, self.truncated_importance_sampling_ratio_min = 2.0, None
        self.sequence_level_importance_ratios = self.use_cispo = self.force_on_policy_ratio = False

    def __call__(
        self,
        next_token_logprobs: Tensor,
        data: dict[str, Tensor],
        global_valid_seqs: Tensor,
        global_valid_toks: Tensor,
    ) -> tuple[Tensor, dict[str, Any]]:
        del global_valid_seqs
        mask = data["token_mask"][:, 1:] * data["sample_mask"].unsqueeze(-1)
        old, sampled = data["prev_logprobs"][:, 1:], data["generation_logprobs"][:, 1:]
        bounds = {"low": self.ratio_clip_min, "high": self.ratio_clip_max, "dual": self.ratio_clip_c}
        loss = CLIPPED["rig"].clipped(next_token_logprobs - old, data["advantages"][:, 1:], **bounds)
        low = self.truncated_importance_sampling_ratio_min or 0.0
        weights = torch.nan_to_num((old - sampled).exp(), nan=0.0, posinf=0.0, neginf=0.0)
        loss = loss * weights.clamp(low, self.truncated_importance_sampling_ratio)
        return (loss * mask).sum() / global_valid_toks, {}


class Policy:
    """Its worker is this process, which gets the loss as bytes."""

    def __init__(self) -> None:
        self.worker_group = SimpleNamespace(workers=[])
        self.last: Step | None = None

    def train(self, data: Any, loss_fn: Any, eval_mode: bool = False, timer: Any = None) -> dict[str, Any]:
        del eval_mode, timer
        sent = pickle.loads(pickle.dumps(loss_fn))
        assert sent.loss_type is not None
        loss, _ = sent(data["new"], data, global_valid_seqs=torch.tensor(4), global_valid_toks=torch.tensor(20))
        loss.backward()
        self.last = Step(loss=loss.detach(), gradient=data["shift"].grad)
        return {"loss": loss.detach(), "grad_norm": torch.tensor(1.0), "all_mb_metrics": {}}


class NemoRlRig(Rig):
    def __init__(self) -> None:
        super().__init__()
        self.own = self.loss = ClippedPGLossFn()
        self.policy = Policy()

    def attach(self, url: str = "memory:", job: str = "run") -> None:
        self.loss, self.attachment = nemo_rl.attach(self.policy, self.own, url=url, job=job, caller=HereCaller())

    def step(self) -> Step:
        CLIPPED["rig"] = self
        batch = self.batch()

        def padded(tensor: Tensor) -> Tensor:
            return pad(tensor.detach(), (1, 0), value=float("nan"))  # the first column is nobody's

        data = {
            "new": batch.train,
            "shift": batch.shift,
            "prev_logprobs": padded(batch.old),
            "generation_logprobs": padded(batch.rollout),
            "advantages": padded(batch.advantages),
            "token_mask": pad(batch.mask, (1, 0)),
            "sample_mask": torch.ones(len(batch.mask)),
        }
        self.policy.train(data, self.loss)
        assert self.policy.last is not None
        return self.policy.last
