"""The knobs of TRL's trainers, and which of them can be turned while a run goes on."""

from __future__ import annotations

import math
from typing import Any

from trimtab.hooks.bounds import lower_width
from trimtab.hooks.controls import NUMERIC_BOUNDS, Controls, Liveness
from trimtab.hooks.knobs import Knob, Panel, restart

CONTROL_TABLE: dict[str, Liveness] = {
    "clip_low": Liveness.LIVE,
    "clip_high": Liveness.LIVE,
    "dual_clip": Liveness.LIVE,
    "clip_mode": Liveness.LIVE,
    "clip_rebalance": Liveness.LIVE,
    "ratio_reference": Liveness.LIVE,
    "importance": Liveness.LIVE,
    "importance_low": Liveness.LIVE,
    "importance_high": Liveness.LIVE,
    "importance_inside": Liveness.LIVE,
    "importance_level": Liveness.LIVE,
    "centering": Liveness.LIVE,
    "kl_coef": Liveness.LIVE,
    "lr_scale": Liveness.LIVE,
    "paused": Liveness.LIVE,
    "objective": Liveness.RESTART,
    "aggregation": Liveness.RESTART,
    "advantage": Liveness.RESTART,
    "max_staleness": Liveness.RESTART,
}
"""When a change takes effect, at best: what a run has to bring for it is in docs/attach/trl.md. The rest is absent."""
AGGREGATIONS = {"grpo": "sequence_mean", "sapo": "sequence_mean", "dr_grpo": "fixed_length"}
"""By `loss_type`; the others weigh every token alike."""
IMPORTANCE_MODES = {
    "token_truncate": ("tis", "token"),
    "token_mask": ("mis", "token"),
    "sequence_truncate": ("tis", "sequence"),
    "sequence_mask": ("mis", "sequence"),
}
"""`vllm_importance_sampling_mode` -> importance, importance_level."""
PPO_LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
"""Values of `loss_type` that clip the ratio on both sides."""
_LEAST_BETA = 1e-12
"""In the place of 0: without a weight on it TRL records no reference log-probs, and could not take it up again."""
IMPORTANCE = ("importance", "importance_low", "importance_high", "importance_inside", "importance_level")
"""The controls that an importance weight is made of."""


def sync_panel(trainer: Any, *, head: str, shadow: bool) -> Panel:
    """Of a GRPOTrainer.

    Args:
        trainer: it.
        head: why no head of the sampler is recorded; empty where one is.
        shadow: the ratio of the BF16 twin can be had.
    """
    clips = trainer.loss_type in PPO_LOSSES
    unclipped = "" if clips else f"loss_type {trainer.loss_type!r} has no such clip bounds"
    sampled = trainer.use_vllm or getattr(trainer, "rollout_func", None) is not None
    unsampled = "" if sampled else "transformers' generate records no log-probs; use vLLM or a rollout_func"
    level = "" if trainer.importance_sampling_level == "token" else "the ratio is the sequence's (GSPO)"
    knobs = {
        **_clip_knobs(trainer, unclipped),
        "dual_clip": Knob(
            # Put for each call of the loss: `args` may be another trainer's too, and is in every checkpoint.
            get=lambda: trainer.args.delta,
            shown=lambda delta: math.inf if delta is None else max(float(delta), 1.0),
            **_standing(unclipped),
        ),
        "ratio_reference": _obeyed("recomputed", unsampled or unclipped or level),
        "clip_mode": _obeyed(
            "nominal", unclipped or level or ("" if shadow else "attach was given no `shadow` to compute the BF16 twin")
        ),
        "clip_rebalance": _obeyed("quantile", unclipped or level),
        "centering": _obeyed(False, head or unclipped or level or _uncentered(trainer)),
        **_importance_knobs(trainer, unsampled),
        "kl_coef": _attribute(
            trainer,
            "beta",
            "" if trainer.beta else "beta is 0, so no reference log-probs are there; start with a small one",
            shown=lambda beta: min(float(beta), NUMERIC_BOUNDS["kl_coef"].high),
            told=lambda beta: max(beta, _LEAST_BETA),
        ),
        **_common_knobs(trainer),
        "objective": Knob.obeyed(
            _objective(trainer),
            **restart("TRL reads loss_type and importance_sampling_level in several places that have to agree"),
        ),
        "aggregation": Knob.obeyed(
            AGGREGATIONS.get(trainer.loss_type, "token_mean"), **restart("it is part of TRL's loss_type")
        ),
        "advantage": Knob.obeyed(
            "group_mean" if getattr(trainer, "scale_rewards", "group") == "none" else "group_std",
            **restart("advantages are computed when the batch is generated"),
        ),
    }
    return Panel(knobs)


def async_panel(trainer: Any) -> Panel:
    """Of an AsyncGRPOTrainer, whose ratio is against the sampler, and whose loss has no weights and no second bound."""
    none = "the asynchronous loss has no importance weights: its ratio is against the sampler already"
    return Panel(
        {
            **_clip_knobs(trainer, ""),
            **_common_knobs(trainer),
            "ratio_reference": Knob.obeyed("sampler", **restart("nothing else is recorded with the rollouts")),
            **{name: Knob.obeyed(_NEUTRAL[name], liveness=Liveness.ABSENT, reason=none) for name in IMPORTANCE},
            "centering": Knob.obeyed(
                False, liveness=Liveness.ABSENT, reason="the rollout worker asks vLLM for the sampled token alone"
            ),
            "max_staleness": Knob.obeyed(
                float(getattr(trainer.args, "max_staleness", math.inf)),
                **restart("TRL's queue reads it when it is made"),
            ),
        }
    )


_NEUTRAL = {name: getattr(Controls(), name) for name in IMPORTANCE}


def _clip_knobs(trainer: Any, refused: str) -> dict[str, Knob]:
    low = _attribute(trainer, "epsilon_low", refused, shown=lower_width)
    most = NUMERIC_BOUNDS["clip_high"].high
    high = _attribute(trainer, "epsilon_high", refused, shown=lambda epsilon: min(float(epsilon), most))
    return {"clip_low": low, "clip_high": high}


def _common_knobs(trainer: Any) -> dict[str, Knob]:
    engine = "DeepSpeed steps its optimizer inside backward" if getattr(trainer, "is_deepspeed_enabled", False) else ""
    return {"lr_scale": _obeyed(1.0, engine), "paused": _obeyed(False, "")}


def _importance_knobs(trainer: Any, refused: str) -> dict[str, Knob]:
    corrected = trainer.use_vllm and trainer.vllm_importance_sampling_correction
    kind, level = IMPORTANCE_MODES.get(trainer.vllm_importance_sampling_mode, ("none", "token"))
    own = dict(_NEUTRAL)
    if corrected:
        low, high = trainer.vllm_importance_sampling_clip_min, trainer.vllm_importance_sampling_clip_max
        own |= {
            "importance": kind,
            "importance_level": level,
            "importance_low": 0.0 if low is None else float(low),
            "importance_high": math.inf if high is None else float(high),
        }
    if trainer.loss_type == "vespo":
        refused = refused or "vespo has weights of its own"
    return {name: _obeyed(own[name], refused) for name in IMPORTANCE}


def _uncentered(trainer: Any) -> str:
    if trainer.loss_type == "luspo":
        return "luspo weighs whole sequences"
    if getattr(trainer, "top_entropy_quantile", 1.0) < 1.0:
        return "top_entropy_quantile leaves tokens out of the loss by their entropy"
    return "off_policy_mask_threshold leaves responses out" if trainer.off_policy_mask_threshold is not None else ""


def _objective(trainer: Any) -> str:
    if trainer.loss_type == "cispo":
        return "cispo"
    return "gspo" if trainer.importance_sampling_level == "sequence" else "ppo"


def _attribute(owner: Any, name: str, refused: str, **rest: Any) -> Knob:
    return Knob.attribute(owner, name, **_standing(refused), **rest)


def _obeyed(value: Any, refused: str) -> Knob:
    return Knob.obeyed(value, **_standing(refused))


def _standing(refused: str) -> dict[str, Any]:
    return restart(refused) if refused else {}
