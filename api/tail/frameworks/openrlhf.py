"""OpenRLHF: `ppo_actor.py`, `ppo_trainer.py` and `loss.py` of 0.11.2."""

from __future__ import annotations

from trimtab.api.tail.assembly import Axis
from trimtab.api.tail.frameworks.framework import Framework, Meaning

OPENRLHF = Framework(
    name="openrlhf",
    title="OpenRLHF 0.11.2",
    prefixes=("train/",),
    marks=("ppo_clip_ratio", "vllm_kl", "actor_grad_norm", "logprobs_diff", "actor_lr"),
    axis=Axis(step_keys=("train/global_step",)),
    keys={
        "policy_loss": Meaning(name="loss", says="the policy term of the loss"),
        "actor_grad_norm": Meaning(name="grad_norm", says="norm of the actor's gradient"),
        "entropy_loss": Meaning(name="entropy", says="mean entropy, nats; there where an entropy coefficient is set"),
        "reward": Meaning(name="reward_mean", says="mean reward"),
        "response_length": Meaning(name="length_mean", says="mean response length, tokens"),
        "truncated": Meaning(name="truncated_fraction", says="truncated responses", fraction=True),
        "vllm_kl": Meaning(
            name="mismatch_mean", says="k1 KL of sampler to trainer, nats: minus the mean log-ratio", factor=-1.0
        ),
        "group_reward_std": Meaning(says="mean standard deviation of the rewards of a group"),
        "ppo_clip_ratio": Meaning(says="share of ALL tokens that the clip silences, at either bound", fraction=True),
        "ppo_kl": Meaning(says="k1 KL of the old to the updated policy; nothing of the reference policy"),
        "kl": Meaning(says="KL to the reference policy"),
        "logprobs_diff": Meaning(says="mean log-prob difference to the reference policy"),
        "is_filter_ratio": Meaning(says="share that the importance correction filters or clips", fraction=True),
    },
    blind=(
        "`vllm_kl` is a signed mean: differences of both signs cancel in it.",
        "Means over micro-batches hide what one of them did.",
    ),
)
"""The table."""
