"""slime 0.3.1 and miles: `train/*` of each update and `rollout/*` of each rollout, on axes of their own."""

from __future__ import annotations

from trimtab.api.tail.assembly import Axis
from trimtab.api.tail.frameworks.framework import Framework, Meaning

SLIME = Framework(
    name="slime",
    title="slime 0.3.1, miles",
    marks=(
        "train/train_rollout_logprob_abs_diff",
        "rollout/truncated_ratio",
        "rollout/raw_reward",
        "train/pg_clipfrac",
        "rollout/repetition_frac",
    ),
    axis=Axis(step_keys=("train/step",), ahead=("rollout/", "perf/", "eval/", "multi_turn/", "passrate/")),
    keys={
        "train/loss": Meaning(name="loss", says="total loss"),
        "train/pg_loss": Meaning(name="loss", says="the policy term of the loss"),
        "train/grad_norm": Meaning(name="grad_norm", says="norm of the gradient before clipping"),
        "train/entropy_loss": Meaning(name="entropy", says="mean entropy, nats: each response's mean, averaged"),
        "train/mismatch_k3_kl": Meaning(name="mismatch_kl", says="k3 KL of sampler to trainer, nats, of raw ratios"),
        "rollout/raw_reward": Meaning(name="reward_mean", says="mean reward before normalisation"),
        "rollout/rewards": Meaning(says="mean reward after normalisation within groups"),
        "rollout/response_len/mean": Meaning(name="length_mean", says="mean response length, tokens"),
        "rollout/truncated_ratio": Meaning(name="truncated_fraction", says="truncated responses", fraction=True),
        "rollout/truncated": Meaning(name="truncated_fraction", says="truncated responses", fraction=True),
        "rollout/repetition_frac": Meaning(says="responses that repeat themselves", fraction=True),
        "train/train_rollout_logprob_abs_diff": Meaning(says="mean |trainer - sampler log-prob|, nats"),
        "train/ois": Meaning(says="mean ratio of the updated to the old policy, raw"),
        "train/tis": Meaning(says="mean ratio of trainer by sampler, raw: taken before the clamp"),
        "train/tis_abs": Meaning(says="mean |ratio - 1|, raw"),
        "train/tis_clipfrac": Meaning(says="share of tokens whose importance weight is clamped", fraction=True),
        "train/pg_clipfrac": Meaning(says="share of ALL tokens that the clip silences, at either bound", fraction=True),
        "train/opsm_clipfrac": Meaning(says="share that the off-policy sequence mask drops", fraction=True),
        "train/ppo_kl": Meaning(says="KL of the old to the updated policy; nothing of the reference policy"),
        "train/kl_loss": Meaning(says="KL to the reference policy"),
    },
    blind=(
        "`rollout/*` is logged with the rollout's number: it is shown at the update that comes next.",
        "Means over responses weigh a short one like a long one.",
    ),
)
"""The table."""
