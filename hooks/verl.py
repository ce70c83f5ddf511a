"""verl (read: 0.9.1): the loss measures in the workers, the driver reports, and controls travel with each batch.

Named as `actor_rollout_ref.model.external_lib`, this module is imported in every worker and registers, for each policy
loss `NAME` of verl, one called `trimtab_NAME` that measures what verl passes to it. `attach(trainer)`, or the trainers
that `register_trainers` makes, put `ppo_loss` of this module in verl's place, which sees entropy and the sampler's
log-probs too. Neither changes a loss: bounds are given to verl's own as a copy of its frozen configuration.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

from trimtab.hooks.attachment import Attachment
from trimtab.hooks.bounds import dual_told
from trimtab.hooks.controls import ControlValue, Liveness, RatioReference
from trimtab.hooks.fleet import Caller, Fleet, RayCaller
from trimtab.hooks.meter import METER
from trimtab.hooks.trainer_scalars import scalars_from
from trimtab.hooks.verl_steering import Steering
from trimtab.hooks.worker import attach_worker, unwrap

CONTROL_TABLE: dict[str, Liveness] = {
    "clip_low": Liveness.LIVE,
    "clip_high": Liveness.LIVE,
    "dual_clip": Liveness.LIVE,
    "kl_coef": Liveness.LIVE,
    "importance": Liveness.NEXT_ROLLOUT,
    "importance_low": Liveness.NEXT_ROLLOUT,
    "importance_high": Liveness.NEXT_ROLLOUT,
    "importance_level": Liveness.NEXT_ROLLOUT,
    "ratio_reference": Liveness.RESTART,
}
"""When what takes effect; all other controls are absent."""
KEY = "trimtab"
"""Of the controls in a batch's metadata, and of the losses' names."""
FIELDS = {
    "clip_low": "clip_ratio_low",
    "clip_high": "clip_ratio_high",
    "dual_clip": "clip_ratio_c",
    "kl_coef": "kl_loss_coef",
}
"""Fields of verl's `ActorConfig` by our control."""

_log = logging.getLogger("trimtab")
_inside_ppo_loss = False


def with_controls(config: Any, overrides: Mapping[str, ControlValue]) -> Any:
    """`config` itself, or a copy of it with the overrides; its dictionaries are shared, and verl fills them.

    verl's configurations refuse to be changed, and the copy is given the values below that refusal.
    """
    if not overrides:
        return config
    changed = copy.copy(config)
    for name, value in overrides.items():
        told = dual_told(float(value)) if name == "dual_clip" else value
        object.__setattr__(changed, FIELDS[name], told)
    return changed


def measured_loss(inner: Callable[..., Any]) -> Callable[..., Any]:
    """The registered policy loss `inner`, measuring what it is called with."""

    @wraps(inner)
    def policy_loss(**given: Any) -> Any:
        if not _inside_ppo_loss:  # which has measured these tokens, and more about them
            try:
                old, config = given["old_log_prob"], given.get("config")
                METER.observe(
                    _reference(config),
                    train_logprobs=given["log_prob"].detach(),
                    advantages=given["advantages"],
                    loss_mask=given["response_mask"],
                    **_olds(config, old, None),
                )
            except Exception as error:
                METER.swallow("policy_loss", error)
        return inner(**given)

    return policy_loss


def ppo_loss(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
    """verl's `ppo_loss`, with the controls of the batch, measuring every tensor that it has."""
    global _inside_ppo_loss
    from verl.workers.utils import losses

    live = config
    try:
        overrides = told_by(data)
        if overrides is not None:
            live = with_controls(config, overrides)
            _measure(config, model_output, data)
    except Exception as error:
        METER.swallow("ppo_loss", error)
        live = config
    _inside_ppo_loss = True
    try:
        return losses.ppo_loss(live, model_output, data, dp_group)
    finally:
        _inside_ppo_loss = False


def told_by(data: Any) -> dict[str, ControlValue] | None:
    """The overrides in a batch's metadata, of which a worker that has broken down obeys none; None where the driver is
    not attached any more, and nobody wants to know what is measured."""
    from verl.utils import tensordict_utils

    told = tensordict_utils.get_non_tensor_data(data=data, key=KEY, default=None)
    if not told:
        return None
    return {} if METER.broken else json.loads(told)


def _measure(config: Any, model_output: Any, data: Any) -> None:
    from verl.workers.utils.padding import no_padding_2_padding

    names = [name for name in ("response_mask", "old_log_probs", "advantages", "rollout_log_probs") if name in data]
    padded = data.select(*names).to_padded_tensor()
    entropy = model_output.get("entropy", None)
    METER.observe(
        _reference(config),
        train_logprobs=no_padding_2_padding(model_output["log_probs"], data).detach(),
        advantages=padded["advantages"],
        loss_mask=padded["response_mask"],
        entropy=None if entropy is None else no_padding_2_padding(entropy, data).detach(),
        **_olds(config, padded["old_log_probs"], padded.get("rollout_log_probs", None)),
    )


def _reference(config: Any) -> RatioReference:
    """What "old" is: the sampler's log-probs in bypass mode, or the trainer's, recomputed before the first update."""
    return (
        "sampler" if config is not None and config.policy_loss.get("loss_mode", "") == "bypass_mode" else "recomputed"
    )


def _olds(config: Any, old: Any, rollout: Any) -> dict[str, Any]:
    if _reference(config) == "sampler":
        return {"rollout_logprobs": old}
    return {"old_logprobs": old, "rollout_logprobs": rollout}


def register_losses() -> None:
    """Register `trimtab_NAME` for every policy loss `NAME`. May be repeated."""
    from verl.trainer.ppo import core_algos

    for name, inner in list(core_algos.POLICY_LOSS_REGISTRY.items()):
        if not name.startswith(KEY) and f"{KEY}_{name}" not in core_algos.POLICY_LOSS_REGISTRY:
            core_algos.register_policy_loss(f"{KEY}_{name}")(measured_loss(inner))


def attach(
    trainer: Any, *, url: str | None = None, job: str | None = None, caller: Caller | None = None
) -> Attachment | None:
    """Attach a `PPOTrainer` whose workers are there (from `on_train_begin` on); None where it cannot be, as logged.

    Args:
        trainer: the driver's trainer.
        url: of the agent, in place of the environment's `TRIMTAB_URL`.
        job: name of the run, in place of `TRIMTAB_JOB`.
        caller: reaches the actor's workers; Ray's by default.
    """
    try:
        return _attached(trainer, url, job, caller or RayCaller(lambda: trainer.actor_rollout_wg.workers))
    except Exception as error:
        _log.error("trimtab: not attached to verl: %s: %s", type(error).__name__, error)
        return None


def _attached(trainer: Any, url: str | None, job: str | None, caller: Caller) -> Attachment | None:
    steering = Steering(trainer)
    inner_update, inner_end = trainer._update_actor, trainer.on_step_end
    last: dict[str, Any] = {}
    own = {name: vars(trainer).get(name) for name in ("_update_actor", "on_step_end")}
    steps = 0

    def undo() -> None:
        unwrap(trainer, "_update_actor", update, own.get("_update_actor"))
        unwrap(trainer, "on_step_end", end, own.get("on_step_end"))

    attachment = attach_worker(
        steering.panel(),
        undo=undo,
        collective=lambda: Fleet(caller),
        url=url,
        job=job,
        rollout_logprobs=steering.records,
    )
    if attachment is None:
        return None
    with attachment.safely("set_loss_fn"):
        _replace_loss(trainer)

    @wraps(inner_update)
    def update(batch: Any, metrics: Any) -> Any:
        with attachment.safely("metadata"):
            if attachment.attached:
                batch.extra_info[KEY] = steering.metadata()
            else:
                batch.extra_info.pop(KEY, None)
        result = inner_update(batch, metrics=metrics)
        with attachment.safely("metrics"):
            last.update(metrics)
        return result

    @wraps(inner_end)
    def end() -> Any:
        nonlocal steps
        result = inner_end()
        step = attachment.tried("global_steps", lambda: int(trainer.global_steps))
        steps = steps + 1 if step is None else step
        attachment.end_step(step=steps, scalars=scalars_from(attachment, last, _SCALARS))
        last.clear()
        return result

    trainer._update_actor, trainer.on_step_end = update, end
    return attachment


_SCALARS = {"actor/grad_norm": "grad_norm", "actor/pg_loss": "loss"}


def _replace_loss(trainer: Any) -> None:
    """Put our loss in verl's place on every worker, by the call that verl has for it."""
    from verl.utils.config import omega_conf_to_dataclass

    config = trainer.config
    if config.get("distillation", None) and config.distillation.get("enabled", False):
        return  # it has another loss; what verl calls by name is measured
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    trainer.actor_rollout_wg.set_loss_fn(partial(ppo_loss, config=actor))


def register_trainers() -> None:
    """Register `trimtab_MODE` for each mode of verl's trainer: the same trainer, attached when training begins.

    Call it in the process that runs the trainer, and set `trainer.v1.trainer_mode=trimtab_sync`.
    """
    from verl.trainer.ppo.v1 import trainer_base

    for name, base in list(trainer_base.TRAINER_REGISTRY.items()):
        if not name.startswith(KEY) and f"{KEY}_{name}" not in trainer_base.TRAINER_REGISTRY:
            trainer_base.register_trainer(f"{KEY}_{name}")(_attaching(base))


def _attaching(base: Any) -> type:
    def on_train_begin(self: Any) -> None:
        base.on_train_begin(self)
        self.trimtab = attach(self)

    return type(f"Trimtab{base.__name__}", (base,), {"on_train_begin": on_train_begin})


if "verl.trainer.ppo.core_algos" in sys.modules or "verl.workers.config" in sys.modules:
    try:  # this import is verl's own, of `external_lib`
        register_losses()
    except Exception as problem:
        _log.error("trimtab: verl's losses are not measured: %s: %s", type(problem).__name__, problem)
