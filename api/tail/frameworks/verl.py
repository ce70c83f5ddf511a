"""verl: `metric_utils.py`, `core_algos.py`, `engine_workers.py` and `rollout_corr_helper.py` of 0.9.1."""

from __future__ import annotations

from trimtab.api.tail.assembly import Axis
from trimtab.api.tail.frameworks.framework import Framework, Meaning

_CORRECTION = "rollout_corr/"
_WEIGHTS = "importance weights of trainer by sampler, logged after truncation"

VERL = Framework(
    name="verl",
    title="verl 0.9.1",
    marks=("actor/pg_clipfrac", "actor/ppo_kl", "critic/score/mean", "response_length/clip_ratio", "actor/pg_loss"),
    axis=Axis(step_keys=("training/global_step",)),
    keys={
        "actor/loss": Meaning(name="loss", says="loss of the actor"),
        "actor/pg_loss": Meaning(name="loss", says="the policy term of the loss"),
        "actor/grad_norm": Meaning(name="grad_norm", says="norm of the actor's gradient before clipping"),
        "actor/entropy": Meaning(name="entropy", says="mean entropy, nats, aggregated as `loss_agg_mode` says"),
        "critic/score/mean": Meaning(name="reward_mean", says="mean score of the task, without a KL penalty"),
        "critic/rewards/mean": Meaning(says="mean reward with the KL penalty, where there is one"),
        "response_length/mean": Meaning(name="length_mean", says="mean response length, tokens"),
        "response_length/clip_ratio": Meaning(
            name="truncated_fraction",
            says="responses of the longest length; nothing of the ratio's clip",
            fraction=True,
        ),
        "actor/pg_clipfrac": Meaning(says="share of ALL tokens that the clip silences, at either bound", fraction=True),
        "actor/pg_clipfrac_lower": Meaning(
            says="dual clip: share of tokens of negative advantage whose ratio is above clip_ratio_c; nothing of the "
            "lower bound",
            fraction=True,
        ),
        "actor/ppo_kl": Meaning(says="k1 KL of the old to the updated policy, nats; nothing of the reference policy"),
        "actor/kl_loss": Meaning(says="KL to the reference policy"),
        f"{_CORRECTION}k3_kl": Meaning(name="mismatch_kl", says="k3 KL of sampler to trainer, nats, of raw ratios"),
        f"{_CORRECTION}kl": Meaning(
            name="mismatch_mean", says="k1 KL of sampler to trainer, nats: minus the mean log-ratio", factor=-1.0
        ),
        f"{_CORRECTION}chi2_token": Meaning(name="chi2_token", says="chi-squared divergence over tokens"),
        f"{_CORRECTION}chi2_seq": Meaning(name="chi2_sequence", says="chi-squared divergence over responses"),
        f"{_CORRECTION}rollout_rs_masked_fraction": Meaning(
            name="retained_fraction", says="1 - share of tokens that rejection masks", factor=-1.0, offset=1.0
        ),
        f"{_CORRECTION}rollout_is_mean": Meaning(says=f"mean of the {_WEIGHTS}", censored="above"),
        f"{_CORRECTION}rollout_is_max": Meaning(says=f"largest of the {_WEIGHTS}", censored="above"),
        f"{_CORRECTION}rollout_is_std": Meaning(says=f"standard deviation of the {_WEIGHTS}", censored="above"),
        f"{_CORRECTION}rollout_is_eff_sample_size": Meaning(
            says=f"effective share of the sample, of the {_WEIGHTS}", censored="below"
        ),
        f"{_CORRECTION}rollout_is_ratio_fraction_high": Meaning(says="raw weights above the bound", fraction=True),
        f"{_CORRECTION}rollout_is_ratio_fraction_low": Meaning(says="raw weights below the bound", fraction=True),
        "training/rollout_probs_diff_mean": Meaning(says="mean |difference of PROBABILITIES|, not of their logarithms"),
        "training/rollout_probs_diff_max": Meaning(says="largest |difference of PROBABILITIES|"),
    },
    blind=(
        "verl's file logger writes NaN and the infinities as null: the key is missing in that row.",
        "It opens its file anew at a restart of the same name: what was not read until then is gone.",
        "Means over mini-batches hide what one of them did.",
    ),
)
"""The table."""
