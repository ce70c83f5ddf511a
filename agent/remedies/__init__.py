"""Every remedy, by name. To add one: its file, one line here, and its place on a ladder in `trimtab.agent.ladders`."""

from __future__ import annotations

from trimtab.agent.remedies import (
    bf16_last_layers,
    calibrated_clipping,
    dequantised_backward,
    four_over_six,
    fresher_rollouts,
    masked_importance,
    pause,
    recomputed_ratio,
    restore_checkpoint,
    sampler_precision,
    score_centering,
    smaller_steps,
    tighter_clip,
    trainer_precision,
    truncated_importance,
)
from trimtab.agent.remedy import Remedy

REMEDIES: dict[str, Remedy] = {
    "score_centering": score_centering.propose,
    "recomputed_ratio": recomputed_ratio.propose,
    "calibrated_clipping": calibrated_clipping.propose,
    "truncated_importance": truncated_importance.propose,
    "masked_importance": masked_importance.propose,
    "fresher_rollouts": fresher_rollouts.propose,
    "smaller_steps": smaller_steps.propose,
    "tighter_clip": tighter_clip.propose,
    "dequantised_backward": dequantised_backward.propose,
    "four_over_six": four_over_six.propose,
    "bf16_last_layers": bf16_last_layers.propose,
    "sampler_precision": sampler_precision.propose,
    "trainer_precision": trainer_precision.propose,
    "restore_checkpoint": restore_checkpoint.propose,
    "pause": pause.propose,
}
