"""AReaL (read: 1.0.4): `grpo_loss_fn` is measured, and `PPOActor.config`, read at every update, is turned.

`patch()`, in each engine's process before the actor is made, wraps `PPOActor`. A step is one `ppo_update`, which every
rank calls equally often.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

from trimtab.hooks.attachment import Attachment
from trimtab.hooks.bounds import band_shown, band_told, dual_or_none, dual_shown, lower_width
from trimtab.hooks.controls import Liveness
from trimtab.hooks.knobs import Knob, Panel, restart
from trimtab.hooks.worker import OncePerProcess, attach_worker, torch_ranks, unwrap

CONTROL_TABLE: dict[str, Liveness] = {
    "clip_low": Liveness.LIVE,
    "clip_high": Liveness.LIVE,
    "dual_clip": Liveness.LIVE,
    "importance_low": Liveness.LIVE,
    "importance_high": Liveness.LIVE,
    "importance": Liveness.RESTART,
    "importance_level": Liveness.RESTART,
    "ratio_reference": Liveness.RESTART,
}
"""When what takes effect; all other controls are absent."""
_MODULE = "areal.trainer.ppo.actor"

_log = logging.getLogger("trimtab")
_ATTACHED: OncePerProcess[Attachment] = OncePerProcess()


def samples_are_old(config: Any) -> bool:
    """Whether the loss's ratio is against what the inference engine recorded, and not recomputed."""
    return not config.use_decoupled_loss and not config.recompute_logprob


class Bounds:
    """`eps_clip` and `eps_clip_higher`, of which the upper may be None: the same as the lower, whatever that is. It is
    so again where both are the same."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._symmetric = config.eps_clip_higher is None

    @property
    def low(self) -> float:
        """Below 1."""
        return self._config.eps_clip  # type: ignore[no-any-return]

    @low.setter
    def low(self, width: float) -> None:
        high, self._config.eps_clip = self.high, width
        self.high = high

    @property
    def high(self) -> float:
        """Above 1."""
        config = self._config
        return config.eps_clip if config.eps_clip_higher is None else config.eps_clip_higher  # type: ignore[no-any-return]

    @high.setter
    def high(self, width: float) -> None:
        self._config.eps_clip_higher = None if self._symmetric and width == self._config.eps_clip else width


def panel_of(config: Any) -> Panel:
    """The knobs of a `PPOActorConfig`."""
    sampling, bounds = config.rejection_sampling, Bounds(config)
    usable = sampling is not None and sampling.metric == "ratio"
    band = {} if usable else restart("start with rejection_sampling by metric=ratio, bounds may be wide")
    rule = {"mask": "mis", "clamp": "tis"}[sampling.action] if usable else "none"
    level = "geometric" if usable and sampling.level == "sequence" else "token"
    knobs = {
        "clip_low": Knob.attribute(bounds, "low", shown=lower_width),
        "clip_high": Knob.attribute(bounds, "high"),
        "dual_clip": Knob.attribute(config, "c_clip", shown=dual_shown, told=dual_or_none),
        "importance": Knob.obeyed(rule, **restart("set rejection_sampling.action")),
        "importance_level": Knob.obeyed(level, **restart("set rejection_sampling.level")),
        "ratio_reference": Knob.obeyed(
            "sampler" if samples_are_old(config) else "recomputed",
            **restart("set use_decoupled_loss or recompute_logprob, which change what is computed"),
        ),
    }
    if usable:
        knobs["importance_low"] = Knob.attribute(sampling, "lower", shown=lambda bound: bound or 0.0)
        knobs["importance_high"] = Knob.attribute(sampling, "upper", shown=band_shown, told=band_told)
    else:
        knobs["importance_low"] = Knob.obeyed(0.0, **band)
        knobs["importance_high"] = Knob.obeyed(2.0, **band)
    return Panel(knobs)


def attach(
    actor: Any, *, url: str | None = None, job: str | None = None, group: Any = None, losses: Any = None
) -> Attachment | None:
    """Attach a `PPOActor`, on every rank alike; None where it cannot be, as logged.

    Args:
        actor: whose `config` is turned.
        url: of the agent, in place of the environment's `TRIMTAB_URL`.
        job: name of the run, in place of `TRIMTAB_JOB`.
        group: process group of the actor's ranks; all by default.
        losses: the module whose `grpo_loss_fn` the actor calls; AReaL's by default.
    """
    try:
        if losses is None:
            losses = import_module(_MODULE)
        return _attached(actor, url, job, group, losses)
    except Exception as error:
        _log.error("trimtab: not attached to AReaL: %s: %s", type(error).__name__, error)
        return None


def _attached(actor: Any, url: str | None, job: str | None, group: Any, losses: Any) -> Attachment | None:
    config, inner_loss, inner_update = actor.config, losses.grpo_loss_fn, actor.ppo_update
    own_update = vars(actor).get("ppo_update")
    steps = 0

    def undo() -> None:
        unwrap(losses, "grpo_loss_fn", measured, inner_loss)
        unwrap(actor, "ppo_update", ppo_update, own_update)

    attachment = attach_worker(
        panel_of(config), undo=undo, collective=lambda: torch_ranks(group), url=url, job=job, rollout_logprobs=True
    )
    if attachment is None:
        return None
    losses.grpo_loss_fn = measured = _measured(inner_loss, attachment, config)

    @wraps(inner_update)
    def ppo_update(*given: Any, **named: Any) -> Any:
        nonlocal steps
        result = inner_update(*given, **named)
        attachment.end_step(step=steps)
        steps += 1
        return result

    actor.ppo_update = ppo_update
    return attachment


def _measured(inner: Callable[..., Any], attachment: Attachment, config: Any) -> Callable[..., Any]:
    @wraps(inner)
    def grpo_loss_fn(logprobs: Any, entropy: Any, input_data: Any, *rest: Any, **given: Any) -> Any:
        with attachment.safely("grpo_loss_fn"):
            behaved, proximal = input_data["logprobs"], input_data.get("prox_logp")
            if samples_are_old(config):
                olds = {"rollout_logprobs": behaved}
            elif config.use_decoupled_loss:
                olds = {"old_logprobs": proximal, "rollout_logprobs": behaved}
            else:  # both are the recomputed ones, and what the engine recorded is gone
                olds = {"old_logprobs": behaved}
            attachment.emitter.observe(
                train_logprobs=logprobs.detach(),
                advantages=input_data["advantages"],
                loss_mask=input_data["loss_mask"],
                entropy=entropy.detach(),
                **olds,
            )
        return inner(logprobs, entropy, input_data, *rest, **given)

    return grpo_loss_fn


def patch(actor_class: Any = None) -> None:
    """Attach the first `PPOActor` that this process makes from now on. May be repeated.

    Args:
        actor_class: AReaL's by default.
    """
    if actor_class is None:
        actor_class = import_module(_MODULE).PPOActor
    inner = actor_class.ppo_update
    if hasattr(inner, "trimtab"):
        return

    @wraps(inner)
    def ppo_update(self: Any, *given: Any, **named: Any) -> Any:
        # At the first update and not when it is made: the process group is there by then.
        if not _ATTACHED.tried and _ATTACHED.get(lambda: attach(self)) is not None:
            return self.ppo_update(*given, **named)  # the one of the attached actor, which ends here again
        return inner(self, *given, **named)

    vars(ppo_update)["trimtab"] = True
    actor_class.ppo_update = ppo_update
