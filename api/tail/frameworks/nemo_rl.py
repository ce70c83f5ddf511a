"""NeMo-RL 0.6: `loss_functions.py`, `grpo.py` and its logger."""

from __future__ import annotations

from trimtab.api.tail.frameworks.framework import Framework, Meaning

_CLAMPED = "ratio of the updated to the old policy, after the clip's clamp"

NEMO_RL = Framework(
    name="nemo_rl",
    title="NeMo-RL 0.6",
    prefixes=("train/",),
    marks=("token_mult_prob_error", "gen_kl_error", "policy_kl_error", "probs_ratio_clamped", "is_oob_ratio"),
    keys={
        "loss": Meaning(name="loss", says="total loss"),
        "grad_norm": Meaning(name="grad_norm", says="norm of the gradient before clipping"),
        "reward": Meaning(name="reward_mean", says="mean reward"),
        "token_mult_prob_error": Meaning(
            name="token_mult_prob_error", says="mean of exp(|trainer log-prob - sampler log-prob|)"
        ),
        "gen_kl_error": Meaning(
            name="mismatch_kl",
            says="KL of sampler to trainer, nats; k3 unless `reference_policy_kl_type` says otherwise",
        ),
        "policy_kl_error": Meaning(says="KL of trainer to sampler, on the sampler's tokens"),
        "js_divergence_error": Meaning(says="Jensen-Shannon divergence of the two"),
        "approx_entropy": Meaning(says="an estimate of the entropy by importance weights; wrong where the sampler is"),
        "sampling_importance_ratio": Meaning(
            says="mean importance weight after truncation, what was not finite set to 0", censored="above"
        ),
        "is_oob_ratio": Meaning(says="importance weights out of bounds", fraction=True),
        "probs_ratio": Meaning(says="mean ratio of the updated to the old policy, raw"),
        "probs_ratio_max": Meaning(says="largest ratio of the updated to the old policy, raw"),
        "probs_ratio_clamped": Meaning(says=f"mean {_CLAMPED}"),
        "probs_ratio_clamped_max": Meaning(says=f"largest {_CLAMPED}", censored="above"),
        "probs_ratio_clamped_min": Meaning(says=f"smallest {_CLAMPED}", censored="below"),
        "kl_penalty": Meaning(says="KL to the reference policy"),
        "mean_gen_tokens_per_sample": Meaning(name="length_mean", says="mean generated length, tokens"),
        "truncation_rate": Meaning(name="truncated_fraction", says="truncated samples", fraction=True),
    },
    blind=(
        "Importance weights that are not finite are set to 0 before they are averaged.",
        "W&B drops what is logged for a step that is over.",
    ),
)
"""The table."""
