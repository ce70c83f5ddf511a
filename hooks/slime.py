"""slime (read: 0.3.1 at 624b824a8) and miles (read: 31f1ca961), whose seams are the same: functions named by path.

    --loss-type custom_loss
    --custom-loss-function-path trimtab.hooks.slime.loss
    --custom-megatron-before-train-step-hook-path trimtab.hooks.slime.before_train_step
    --custom-tis-function-path trimtab.hooks.slime.tis       with --use-tis, or with --get-mismatch-metrics

`loss` is the framework's own policy loss, measured; `tis` is its own truncation or masking, chosen by the control
`importance`. The hook runs before every step on every rank, so that all of them turn the same knobs at the same step.
For miles it is `trimtab.hooks.slime.miles_loss`; the rest is the same.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimtab.hooks.attachment import Attachment
from trimtab.hooks.bounds import band_shown, band_told, dual_or_none, dual_shown, lower_width
from trimtab.hooks.controls import Liveness
from trimtab.hooks.knobs import Knob, Panel, restart
from trimtab.hooks.worker import OncePerProcess, attach_worker, torch_ranks

if TYPE_CHECKING:
    from trimtab.hooks.importance import WeightRule

CONTROL_TABLE: dict[str, Liveness] = {
    "clip_low": Liveness.LIVE,
    "clip_high": Liveness.LIVE,
    "dual_clip": Liveness.LIVE,
    "kl_coef": Liveness.LIVE,
    "importance": Liveness.LIVE,
    "importance_low": Liveness.LIVE,
    "importance_high": Liveness.LIVE,
    "ratio_reference": Liveness.RESTART,
}
"""When what takes effect; all other controls are absent."""
SLIME = "slime.backends.megatron_utils.loss"
MILES = "miles.backends.training_utils.loss_hub.losses"
_SCORES = "get_log_probs_and_entropy"

_log = logging.getLogger("trimtab")


@dataclass(slots=True)
class _Process:
    """What this process holds."""

    attached: OncePerProcess[Attachment] = field(default_factory=OncePerProcess)
    rule: str = "none"
    """The importance rule in effect."""
    rule_own: str = "none"
    steps: int = 0
    measured: list[Any] = field(default_factory=list)
    """The advantages of this step's batches that have been measured: recomputation calls the loss again. They are kept
    themselves, since a batch that is gone leaves its id to a later one."""
    scores: dict[str, Any] = field(default_factory=dict)
    """What the model's scores were, of the loss call that is running."""


_PROCESS = _Process()


def loss(args: Any, batch: Any, logits: Any, sum_of_sample_mean: Any) -> Any:
    """slime's policy loss, measured."""
    return _loss(SLIME, args, batch, logits, sum_of_sample_mean)


def miles_loss(args: Any, batch: Any, logits: Any, sum_of_sample_mean: Any) -> Any:
    """miles' policy loss, measured."""
    return _loss(MILES, args, batch, logits, sum_of_sample_mean)


def _loss(path: str, args: Any, batch: Any, logits: Any, sum_of_sample_mean: Any) -> Any:
    module, attachment = import_module(path), _PROCESS.attached.made()
    if attachment is None or not attachment.attached:
        return module.policy_loss_function(args, batch, logits, sum_of_sample_mean)
    with attachment.safely("listen"):
        _listen(module)
    _PROCESS.scores.clear()
    result = module.policy_loss_function(args, batch, logits, sum_of_sample_mean)
    with attachment.safely("loss"):
        _observe(attachment, module, args, batch)
    _PROCESS.scores.clear()
    return result


def _listen(module: Any) -> None:
    """Keep what the framework's scoring function returns to its policy loss."""
    inner = getattr(module, _SCORES)
    if hasattr(inner, "trimtab"):
        return

    @wraps(inner)
    def scored(*given: Any, **named: Any) -> Any:
        result = inner(*given, **named)
        _PROCESS.scores["result"] = result
        return result

    vars(scored)["trimtab"] = True
    setattr(module, _SCORES, scored)


def _observe(attachment: Attachment, module: Any, args: Any, batch: Any) -> None:
    if _tensor_rank() != 0:
        return
    if getattr(args, "recompute_loss_function", False):
        if any(advantages is batch["advantages"] for advantages in _PROCESS.measured):
            return
        _PROCESS.measured.append(batch["advantages"])
    result = _PROCESS.scores["result"]
    scores = result[1] if isinstance(result, tuple) else result
    train = [part.detach() for part in scores["log_probs"]]
    old, rollout = batch.get("log_probs") or None, batch.get("rollout_log_probs") or None
    if args.use_rollout_logprobs:
        old = None
    elif old is None:  # the framework takes the present ones
        old = train
    lists = {
        "train_logprobs": train,
        "old_logprobs": old,
        "rollout_logprobs": rollout,
        "advantages": batch["advantages"],
        "loss_mask": _local_masks(module, args, batch, train),
        "entropy": scores.get("entropy"),
    }
    attachment.emitter.observe(**{name: _rows(parts) for name, parts in lists.items() if parts})


def _rows(parts: Any) -> Any:
    """[B, T] of B responses, padded with 0."""
    from torch.nn.utils.rnn import pad_sequence

    return pad_sequence([part.detach() for part in parts], batch_first=True)


def _local_masks(module: Any, args: Any, batch: Any, train: Any) -> Any:
    """Each response's mask, or with context parallelism the part of it whose tokens are here."""
    masks = batch["loss_masks"]
    if all(len(mask) == len(scores) for mask, scores in zip(masks, train, strict=True)):
        return masks
    if hasattr(module, "get_local_response_loss_masks"):  # miles
        lengths = batch["total_lengths"], batch["response_lengths"]
        return module.get_local_response_loss_masks(*lengths, masks, args.qkv_format, batch.get("max_seq_lens"))
    from slime.backends.megatron_utils.cp_utils import slice_log_prob_with_cp

    each = zip(masks, batch["total_lengths"], batch["response_lengths"], strict=True)
    return [slice_log_prob_with_cp(mask, total, response) for mask, total, response in each]


def _tensor_rank() -> int:
    """Place among the ranks that hold the same tokens, of which one measures."""
    import sys

    core = sys.modules.get("megatron.core")
    return int(core.mpu.get_tensor_model_parallel_rank()) if core is not None else 0


def tis(
    args: Any,
    *,
    pg_loss: Any,
    train_log_probs: Any,
    rollout_log_probs: Any,
    loss_masks: Any,
    **rest: Any,  # noqa: ARG001 - lengths and the like, which a rule about tokens does not need
) -> Any:
    """Weigh the loss of each token as the control `importance` says; by default as slime's own function does.

    Returns:
        The loss of each token, the masks as they were, and metrics by token.
    """
    import torch

    if rollout_log_probs is None or train_log_probs is None:  # nothing to weigh by, which is not worth a crash
        return pg_loss, loss_masks, {}
    log_ratio = (torch.cat(train_log_probs) - torch.cat(rollout_log_probs)).detach()
    ratio = log_ratio.exp()
    weights = ratio.clamp(min=args.tis_clip_low, max=args.tis_clip)
    rule = _PROCESS.rule if _PROCESS.attached.made() is not None else "tis" if args.use_tis else "none"
    if rule != "tis":
        weights = _weight_rule(rule, args)(log_ratio)
    metrics = {
        "tis": ratio.clone(),
        "tis_clipfrac": (weights != ratio).float(),
        "tis_abs": (ratio - 1).abs(),
    }
    return (pg_loss if rule == "none" else pg_loss * weights), loss_masks, metrics


def _weight_rule(rule: str, args: Any) -> WeightRule:
    from trimtab.hooks.importance import masked, truncated, unweighted

    if rule == "mis":
        return masked(args.tis_clip_low, args.tis_clip)
    return unweighted if rule == "none" else truncated(args.tis_clip_low, args.tis_clip)


def panel_of(args: Any) -> Panel:
    """The knobs of a job's `args`, which the loss reads anew at every call."""
    weighed = args.use_tis or getattr(args, "get_mismatch_metrics", False)
    ours = str(getattr(args, "custom_tis_function_path", None)).startswith("trimtab.hooks.slime")
    _PROCESS.rule = _PROCESS.rule_own = "tis" if args.use_tis else "none"
    band: dict[str, Any] = {}
    if args.use_rollout_logprobs:
        band = restart("with --use-rollout-logprobs the ratio is against the sampler already")
    elif not weighed:
        band = restart("the sampler's log-probs are not recorded: start with --use-tis or --get-mismatch-metrics")
    rule = band or ({} if ours else restart("start with --custom-tis-function-path trimtab.hooks.slime.tis"))
    kl = {} if args.use_kl_loss else restart("start with --use-kl-loss, which loads a reference")
    return Panel(
        {
            "clip_low": Knob.attribute(args, "eps_clip", shown=lower_width),
            "clip_high": Knob.attribute(args, "eps_clip_high"),
            "dual_clip": Knob.attribute(args, "eps_clip_c", shown=dual_shown, told=dual_or_none),
            "kl_coef": Knob.attribute(args, "kl_loss_coef", **kl),
            "importance": Knob.attribute(_PROCESS, "rule", **rule),
            "importance_low": Knob.attribute(args, "tis_clip_low", **band),
            "importance_high": Knob.attribute(args, "tis_clip", shown=band_shown, told=band_told, **band),
            "ratio_reference": Knob.obeyed(
                "sampler" if args.use_rollout_logprobs else "recomputed",
                **restart("set --use-rollout-logprobs, which changes what old log-probs are"),
            ),
        }
    )


def before_train_step(
    args: Any,
    rollout_id: int,
    step_id: int,
    model: Any,
    optimizer: Any,
    opt_param_scheduler: Any,
) -> None:
    """Report the step before, and turn the knobs for this one. Called by the framework on every rank."""
    del rollout_id, step_id, model, optimizer, opt_param_scheduler  # they start anew in every rollout
    first = _PROCESS.attached.made() is None
    attachment = _PROCESS.attached.get(lambda: _attached(args))
    if attachment is None or first:
        return
    _PROCESS.measured.clear()
    attachment.end_step(step=_PROCESS.steps)
    _PROCESS.steps += 1


def _attached(args: Any) -> Attachment | None:
    try:
        panel = panel_of(args)
        recorded = bool(args.use_tis or getattr(args, "get_mismatch_metrics", False) or args.use_rollout_logprobs)
        return attach_worker(panel, undo=_undo, collective=torch_ranks, rollout_logprobs=recorded)
    except Exception as error:
        _log.error("trimtab: not attached to slime: %s: %s", type(error).__name__, error)
        return None


def _undo() -> None:
    _PROCESS.rule = _PROCESS.rule_own


def reset() -> None:
    """Forget everything of this process, as if it had just started."""
    attachment = _PROCESS.attached.made()
    if attachment is not None:
        attachment.detach()
    fresh = _Process()
    for name in _Process.__slots__:
        setattr(_PROCESS, name, getattr(fresh, name))
