"""The private names of TRL that the adapter stands on, in one place: checked before anything is wrapped.

Read in TRL 1.16.0, `trl/trainer/grpo_trainer.py` and `trl/experimental/async_grpo/async_grpo_trainer.py`, and in
transformers 5, `trainer.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from trimtab.hooks.records import RecordError

KNOWN = "1.16"
"""Version of TRL that the adapter was written against."""

ATTRIBUTES = {
    "sync": (
        "epsilon_low",
        "epsilon_high",
        "beta",
        "loss_type",
        "importance_sampling_level",
        "num_iterations",
        "temperature",
        "max_completion_length",
        "use_vllm",
        "vllm_importance_sampling_correction",
        "vllm_importance_sampling_mode",
        "vllm_importance_sampling_clip_min",
        "vllm_importance_sampling_clip_max",
        "off_policy_mask_threshold",
        "rollout_func",
        "_step",
        "_metrics",
        "_buffered_inputs",
    ),
    "async": ("epsilon_low", "epsilon_high", "model_version", "_metrics"),
}
"""Read or set on the trainer."""
ARGUMENTS = {"sync": ("delta", "steps_per_generation", "per_device_train_batch_size"), "async": ()}
"""Read or set on its `args`."""
METHODS = {
    "sync": {
        "compute_loss": ("model", "inputs"),
        "_get_per_token_logps_and_entropies": ("model", "input_ids", "attention_mask", "logits_to_keep"),
        "_generate_and_score_completions": ("inputs",),
        "_get_grad_norm": ("model",),
    },
    "async": {"compute_loss": ("model", "inputs"), "_get_grad_norm": ("model",)},
}
"""Wrapped on the trainer, with the leading parameters that the wrappers count on."""
INPUTS = ("completion_ids", "completion_mask", "advantages")
"""Of the dict that the synchronous trainer's loss takes; the others are looked up and may be missing."""


class SeamError(RecordError):
    """TRL has changed under the adapter, or the trainer is none of TRL's; nothing was attached."""


def kind_of(trainer: Any) -> str:
    """`sync` for a GRPOTrainer, `async` for an AsyncGRPOTrainer, subclasses included.

    Raises:
        SeamError: it is neither.
    """
    names = {(each.__module__.partition(".")[0], each.__name__) for each in type(trainer).__mro__}
    if ("trl", "GRPOTrainer") in names:
        return "sync"
    if ("trl", "AsyncGRPOTrainer") in names:
        return "async"
    raise SeamError(
        f"trainer: {type(trainer).__name__} is neither TRL's GRPOTrainer nor its AsyncGRPOTrainer; for a loop of your "
        "own see docs/attach/any-loop.md"
    )


def check_seams(trainer: Any, kind: str) -> None:
    """Raise `SeamError` unless everything that the adapter reads, sets or wraps is there."""
    missing = [name for name in ATTRIBUTES[kind] if not hasattr(trainer, name)]
    missing += [f"args.{name}" for name in ARGUMENTS[kind] if not hasattr(trainer.args, name)]
    for name, wanted in METHODS[kind].items():
        method: Callable[..., Any] | None = getattr(trainer, name, None)
        if method is None:
            missing.append(f"{name}()")
            continue
        found = tuple(inspect.signature(method).parameters)
        if found[: len(wanted)] != wanted:
            missing.append(f"{name}({', '.join(wanted)}, ...), which now is {name}({', '.join(found)})")
    if missing:
        raise SeamError(
            f"trainer: TRL {_version()} has no {'; no '.join(missing)} (on {type(trainer).__name__}); this adapter "
            f"knows TRL {KNOWN}: install that, or a trimtab that knows yours"
        )


def _version() -> str:
    import trl

    return str(trl.__version__)
