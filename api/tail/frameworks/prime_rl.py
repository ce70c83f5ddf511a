"""prime-rl 0.8: FileMonitor and W&B, of the trainer and of the orchestrator."""

from __future__ import annotations

from trimtab.api.tail.frameworks.framework import Framework, Meaning

_MASKED = "share of tokens that the trust region of the loss masks"

PRIME_RL = Framework(
    name="prime_rl",
    title="prime-rl 0.8.0",
    marks=("mismatch_kl/mean", "optim/grad_norm", "mismatch_kl/all/mean", "entropy/all/mean", "is_truncated/mean"),
    keys={
        "loss/mean": Meaning(name="loss", says="mean loss"),
        "optim/grad_norm": Meaning(name="grad_norm", says="norm of the gradient before clipping"),
        "entropy/mean": Meaning(name="entropy", says="mean entropy over the loss mask, nats"),
        "entropy/all/mean": Meaning(name="entropy", says="mean entropy over the loss mask, nats"),
        "mismatch_kl/mean": Meaning(name="mismatch_kl", says="k3 KL of sampler to trainer, nats, of raw ratios"),
        "mismatch_kl/all/mean": Meaning(name="mismatch_kl", says="k3 KL of sampler to trainer, nats, of raw ratios"),
        "mismatch_log_ratio/mean": Meaning(
            name="mismatch_mean", says="mean of trainer - sampler log-prob, nats; of token exports"
        ),
        "reward/mean": Meaning(name="reward_mean", says="mean reward"),
        "reward/all/mean": Meaning(name="reward_mean", says="mean reward"),
        "completion_len/mean": Meaning(name="length_mean", says="mean completion length, tokens"),
        "decode_len/mean": Meaning(name="length_mean", says="mean length of what was decoded, tokens"),
        "is_truncated/mean": Meaning(name="truncated_fraction", says="truncated rollouts", fraction=True),
        "masked_mismatch_kl/mean": Meaning(says="k3 KL over the tokens that the loss masks"),
        "unmasked_mismatch_kl/mean": Meaning(
            says="k3 KL over the tokens that the loss keeps: without those that lie far out", censored="above"
        ),
        "is_masked/mean": Meaning(says=_MASKED, fraction=True),
        "is_masked_low/mean": Meaning(says=f"{_MASKED}, on its lower side", fraction=True),
        "is_masked_high/mean": Meaning(says=f"{_MASKED}, on its upper side", fraction=True),
        "kl_ent_ratio/mean": Meaning(says="mismatch KL by entropy"),
    },
    blind=(
        "FileMonitor drops values that are not finite: their keys are missing in that row.",
        "Trainer and orchestrator log the same step in several rows, and not at the same time: where the orchestrator "
        "is ahead, the trainer's numbers stand at a later step than theirs.",
        "Token exports write null for what is not finite; how many there were is told as `token_export/*_missing`.",
    ),
)
"""The table."""
