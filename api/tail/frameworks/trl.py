"""TRL: `trl/trainer/grpo_trainer.py` of 1.16.0, whose metrics Hugging Face's Trainer hands to every logger."""

from __future__ import annotations

from trimtab.api.tail.assembly import Axis
from trimtab.api.tail.frameworks.framework import Framework, Meaning

_IS = "sampling/importance_sampling_ratio"
_MASKED = "importance ratio of trainer by sampler, logged after truncation or masking"
_CLIPPED = "share of ALL tokens, not of those of one advantage sign, that the clip silences"

TRL = Framework(
    name="trl",
    title="TRL 1.16 (GRPOTrainer)",
    prefixes=("train/",),
    marks=("completions/clipped_ratio", "completions/mean_length", "frac_reward_zero_std", "clip_ratio/region_mean"),
    axis=Axis(step_keys=("train/global_step",)),
    keys={
        "loss": Meaning(name="loss", says="training loss, averaged over the logging interval"),
        "grad_norm": Meaning(name="grad_norm", says="norm of the gradient before clipping"),
        "reward": Meaning(name="reward_mean", says="mean reward, weighted over the reward functions"),
        "reward_std": Meaning(name="reward_std", says="standard deviation of the rewards"),
        "frac_reward_zero_std": Meaning(name="zero_variance_fraction", says="groups with one reward", fraction=True),
        "entropy": Meaning(name="entropy", says="mean entropy over the completion's tokens, nats"),
        "completions/mean_length": Meaning(name="length_mean", says="mean completion length, tokens"),
        "completions/clipped_ratio": Meaning(
            name="truncated_fraction", says="completions without an end; nothing of the ratio's clip", fraction=True
        ),
        "kl": Meaning(says="KL to the reference policy; nothing of the sampler"),
        "clip_ratio/low_mean": Meaning(says=f"{_CLIPPED} at the lower bound", fraction=True),
        "clip_ratio/high_mean": Meaning(says=f"{_CLIPPED} at the upper bound", fraction=True),
        "clip_ratio/region_mean": Meaning(says=f"{_CLIPPED}, at either bound", fraction=True),
        "clip_ratio/low_min": Meaning(says="smallest such share of a process", fraction=True),
        "clip_ratio/high_max": Meaning(says="largest such share of a process", fraction=True),
        "sampling/sampling_logp_difference/mean": Meaning(says="mean |trainer - sampler log-prob|, nats"),
        "sampling/sampling_logp_difference/max": Meaning(says="largest |trainer - sampler log-prob|, nats"),
        f"{_IS}/min": Meaning(says=f"smallest {_MASKED}: 0 is a mask", censored="above"),
        f"{_IS}/mean": Meaning(says=f"mean {_MASKED}", censored="above"),
        f"{_IS}/max": Meaning(says=f"largest {_MASKED}: a value at the cap may be anything above", censored="above"),
        "policy_loss": Meaning(says="the policy term of the loss"),
    },
    blind=(
        "TRL leaves NaN out before it averages over `logging_steps`: a NaN between good steps is not seen, and with "
        "`logging_steps=1` its key is null in that row.",
        "Hugging Face's Trainer replaces a loss that is not finite by the running mean (`logging_nan_inf_filter`); set "
        "it to false.",
        "Importance ratios are logged after truncation and masking: how far they really go is not seen.",
    ),
)
"""The table."""
