"""Which remedies answer which signature, first choice first.

- PRECISION: the ratio that the loss clips is against the sampler's log-probs, so the clip bounds see the sampler's
  noise. What takes it out of the ratio comes first, what weights it after.
- DRIFT: nothing divides by the sampler (REINFORCE), or the ratio is recomputed, so the score of off-policy tokens is
  uncorrected. Weighting it comes first; centering alone slows such a fall and does not stop it (.51 to .56 where
  truncation gave .98 to .99), and with truncation it is the best that was measured under staleness (.957 +- .028).
  So it does against noise that is small and lasts (`trimtab.agent.detectors.clipping`): there the weights are near 1
  and exact. E4M3 under twelve updates a rollout: .621 with truncation, .619 with masking, .515 with centering, .636 in
  BF16 (one seed each; the noise of the cliff is another matter, see the remedies).
- OVERREACH: the updates leave their batch, and no bound holds them: the bounds first, then the size of the steps.
- BACKWARD: gradients spike while the ratios are fine: what the backward pass multiplies by, then the format.

A remedy that is in effect already is passed over, and what one brings another may build on: after the first remedy of
PRECISION the ratio is recomputed, and the next is one of DRIFT. Below the ladders stand the last resorts, for any
signature: what takes the cause away, and a checkpoint from before the harm. A restore comes before the next remedy
where the reward has collapsed and a remedy is in force that has not brought it back: what is left of the policy may be
past saving (`trimtab.agent.remedies.restore_checkpoint`).
"""

from __future__ import annotations

from trimtab.hooks.controls import Controls

LAST_RESORTS = ("sampler_precision", "restore_checkpoint", "pause")

PRECISION = ("score_centering", "recomputed_ratio", "calibrated_clipping", "truncated_importance", *LAST_RESORTS)
DRIFT = (
    "truncated_importance",
    "score_centering",
    "masked_importance",
    "calibrated_clipping",
    "fresher_rollouts",
    "smaller_steps",
    *LAST_RESORTS,
)
BACKWARD = (
    "dequantised_backward",
    "four_over_six",
    "bf16_last_layers",
    "smaller_steps",
    "trainer_precision",
    "restore_checkpoint",
    "pause",
)
OVERREACH = ("tighter_clip", "smaller_steps", "fresher_rollouts", "restore_checkpoint", "pause")
REPEATABLE = frozenset({"restore_checkpoint", "smaller_steps", "fresher_rollouts"})
"""Remedies that go a step further each time, so that one in force does not rule out another of the same."""


def ladder_against(
    applied: Controls, *, gradients: bool = False, mild: bool = False, overreach: bool = False
) -> tuple[str, ...]:
    """The ladder for a run with these controls; `gradients` where it is only they that show anything, `mild` where the
    noise is small and lasts, `overreach` where nothing holds the updates near their batch."""
    if gradients:
        return BACKWARD
    if overreach:
        return OVERREACH
    clips_noise = applied.objective != "reinforce" and applied.ratio_reference == "sampler"
    return PRECISION if clips_noise and not mild else DRIFT
