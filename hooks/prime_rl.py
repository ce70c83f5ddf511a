"""prime-rl (read: 0.8.0 at 559b44772): `loss`, a custom loss by import path, measures and calls the loss it stands for.

    [trainer.loss]
    type = "custom"
    import_path = "trimtab.hooks.prime_rl.loss"
    kwargs = { inner = "default" }

prime-rl's own losses bound probability differences and have no control of ours to turn; with `inner = "clipped"` the
loss is a clipped policy gradient against the sampler, which has. It imports its loss function on every rank before the
first step, and that is when this module starts to count optimizer steps.
"""

from __future__ import annotations

import copy
import importlib
import logging
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab.hooks.attachment import Attachment
from trimtab.hooks.controls import ClipBounds, Controls, Liveness
from trimtab.hooks.knobs import Knob, Panel, restart
from trimtab.hooks.worker import OncePerProcess, after_optimizer_steps, attach_worker, torch_ranks

CONTROL_TABLE: dict[str, Liveness] = {
    "clip_low": Liveness.LIVE,
    "clip_high": Liveness.LIVE,
    "dual_clip": Liveness.LIVE,
    "ratio_reference": Liveness.RESTART,
}
"""When what takes effect, with `inner = "clipped"`; all other controls are absent."""
BUILT_IN = {"default": ("default_loss_fn", "DefaultLossConfig"), "ipo": ("ipo_loss_fn", "IPOLossConfig")}
"""prime-rl's own losses: function and configuration."""
MAX_WAITING = 4096
"""Samples of the first step that are kept until the ranks have met."""

_log = logging.getLogger("trimtab")
EMPTY: Mapping[str, Any] = {}


@dataclass(slots=True)
class _Process:
    """What this process holds."""

    attached: OncePerProcess[Attachment] = field(default_factory=OncePerProcess)
    waiting: list[dict[str, Any]] = field(default_factory=list)
    started: bool = False
    clipped: bool = False
    own: Controls = field(default_factory=lambda: Controls(ratio_reference="sampler"))
    steps: int = 0
    stop_counting: Callable[[], None] = lambda: None
    inner: dict[str, tuple[Mapping[str, Any], Callable[[Any], Any]]] = field(default_factory=dict)
    """Losses by name, each with the settings that it was made with."""


_PROCESS = _Process()


def loss(inputs: Any, *, inner: str = "default", config: Mapping[str, Any] = EMPTY) -> Any:
    """One sample's loss, and its metrics, as prime-rl's `LossOutputs`.

    Args:
        inputs: prime-rl's `LossInputs`, tensors of shape [T].
        inner: `default` or `ipo`, prime-rl's own with the settings in `config`; `clipped`; or the import path of
            another custom loss, of which `config` are the keyword arguments.
        config: settings of the inner loss, for `clipped` the controls `clip_low`, `clip_high` and `dual_clip`.
    """
    made = _PROCESS.inner.get(inner)
    if made is None or made[0] != config:
        settings = copy.deepcopy(dict(config))
        made = _PROCESS.inner[inner] = (settings, _inner(inner, settings))
    _observe(inputs, clipped=inner == "clipped", config=config)
    return made[1](inputs)


def _inner(name: str, config: Mapping[str, Any]) -> Callable[[Any], Any]:
    if name == "clipped":
        return lambda inputs: _clipped(inputs, _controls(config))
    if name in BUILT_IN:
        from prime_rl.configs import trainer as configs
        from prime_rl.trainer.rl import loss as losses

        function, settings = BUILT_IN[name]
        built, chosen = getattr(losses, function), getattr(configs, settings)(**config)
        return lambda inputs: built(inputs, chosen)
    module, _, attribute = name.rpartition(".")
    custom = getattr(importlib.import_module(module), attribute)
    return lambda inputs: custom(inputs, **config)


def _own(config: Mapping[str, Any]) -> Controls:
    return Controls(ratio_reference="sampler", **config)


def _controls(config: Mapping[str, Any]) -> Controls:
    """In effect now."""
    attachment = _PROCESS.attached.made()
    return attachment.controls if attachment is not None and attachment.attached else _own(config)


def _clipped(inputs: Any, controls: Controls) -> Any:
    """Sum over the tokens of -A w log p, where w is the ratio to the sampler where it is not clipped, else 0.

    Its gradient is that of PPO's clipped objective, and it holds no ratio that can become infinite.
    """
    import torch
    from prime_rl.trainer.rl.loss import LossOutputs

    from trimtab.hooks.importance import ppo_shaped

    mask, advantages = inputs.loss_mask, inputs.advantages
    log_ratio = (inputs.trainer_logprobs - inputs.inference_logprobs).detach()
    bounds = ClipBounds.nominal(controls)
    rule = ppo_shaped(bounds.low, bounds.high, advantages, math.log(controls.dual_clip))
    weights = rule(torch.where(mask, log_ratio, 0))
    per_token = torch.where(mask, -advantages * weights * inputs.trainer_logprobs, 0)
    if inputs.loss_weights is not None:
        per_token = per_token * inputs.loss_weights
    clipped = (mask & (weights == 0)).sum() / mask.sum().clamp(min=1)
    return LossOutputs(loss=per_token.sum(), metrics={"is_masked": clipped})


def _observe(inputs: Any, *, clipped: bool, config: Mapping[str, Any]) -> None:
    """Measure one sample; its first position has a made-up log-prob, whatever the mask says."""
    attachment = _PROCESS.attached.made()
    try:
        mask = inputs.loss_mask.clone()
        mask[:1] = False
        tensors = {
            "train_logprobs": inputs.trainer_logprobs.detach()[None],
            "rollout_logprobs": inputs.inference_logprobs[None],
            "advantages": inputs.advantages[None],
            "loss_mask": mask[None],
        }
    except Exception as error:
        if attachment is not None:
            with attachment.safely("loss"):
                raise error
        return
    if attachment is not None:
        if attachment.attached:
            attachment.emitter.observe(**tensors)
    elif _PROCESS.started and len(_PROCESS.waiting) < MAX_WAITING:
        _PROCESS.waiting.append(tensors)
    _PROCESS.own = _own(config if clipped else EMPTY)
    _PROCESS.clipped = clipped


def panel_of(own: Controls, *, clipped: bool) -> Panel:
    """The knobs of the loss; of prime-rl's own losses, none can be turned."""
    rest: dict[str, Any] = {}
    if not clipped:
        reason = "prime-rl's losses mask by probability differences; set kwargs.inner = clipped for a clipped ratio"
        rest = restart(reason)
    return Panel(
        {
            "clip_low": Knob.obeyed(own.clip_low, **rest),
            "clip_high": Knob.obeyed(own.clip_high, **rest),
            "dual_clip": Knob.obeyed(own.dual_clip, **rest),
            "ratio_reference": Knob.obeyed("sampler", **restart("prime-rl recomputes no old log-probs")),
        }
    )


def start() -> None:
    """Begin to count the steps of this process's optimizer; done by the import of this module in prime-rl."""
    if not _PROCESS.started:
        _PROCESS.started = True
        _PROCESS.stop_counting = after_optimizer_steps(_end_step)


def _attached() -> Attachment | None:
    panel = panel_of(_PROCESS.own, clipped=_PROCESS.clipped)
    return attach_worker(panel, undo=_PROCESS.stop_counting, collective=torch_ranks, rollout_logprobs=True)


def _end_step() -> None:
    """Behind an optimizer step, on every rank, also one that had no sample in it."""
    first = _PROCESS.attached.made() is None
    try:
        attachment = _PROCESS.attached.get(_attached)
    except Exception as error:
        _log.error("trimtab: not attached to prime-rl: %s: %s", type(error).__name__, error)
        attachment = None
    if attachment is None:
        _PROCESS.waiting.clear()
        _PROCESS.stop_counting()
        return
    if first:
        for tensors in _PROCESS.waiting:
            attachment.emitter.observe(**tensors)
        _PROCESS.waiting.clear()
    attachment.end_step(step=_PROCESS.steps)
    _PROCESS.steps += 1


def reset() -> None:
    """Forget everything of this process, as if it had just started."""
    attachment = _PROCESS.attached.made()
    if attachment is not None:
        attachment.detach()
    _PROCESS.stop_counting()
    fresh = _Process()
    for name in _Process.__slots__:
        setattr(_PROCESS, name, getattr(fresh, name))


if "prime_rl" in sys.modules:
    start()
