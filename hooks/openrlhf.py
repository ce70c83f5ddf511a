"""OpenRLHF (read: 0.11.2): the actor's loss object is measured and turned, between one rollout's updates and the next.

There is no callback, so `patch()` wraps `ActorPPOTrainer` before the workers make theirs, in each of them (a Ray set-up
hook, or a subclass of `PolicyModelActor`). A step is one `ppo_train`, which every rank calls equally often: the updates
on one batch of rollouts.
"""

from __future__ import annotations

import logging
from functools import wraps
from importlib import import_module
from typing import Any

from trimtab.hooks.attachment import Attachment
from trimtab.hooks.bounds import band_shown, band_told, dual_or_none, dual_shown, lower_width
from trimtab.hooks.controls import Liveness
from trimtab.hooks.knobs import Knob, Panel, restart
from trimtab.hooks.trainer_scalars import scalars_from
from trimtab.hooks.worker import OncePerProcess, attach_worker, torch_ranks, unwrap

CONTROL_TABLE: dict[str, Liveness] = {
    "clip_low": Liveness.NEXT_ROLLOUT,
    "clip_high": Liveness.NEXT_ROLLOUT,
    "dual_clip": Liveness.NEXT_ROLLOUT,
    "importance": Liveness.NEXT_ROLLOUT,
    "importance_low": Liveness.NEXT_ROLLOUT,
    "importance_high": Liveness.NEXT_ROLLOUT,
    "importance_level": Liveness.RESTART,
}
"""When what takes effect; all other controls are absent."""
_MODES = {"clip": "tis", "mask": "mis"}

_log = logging.getLogger("trimtab")
_ATTACHED: OncePerProcess[Attachment] = OncePerProcess()


class Rule:
    """The importance correction of a `PolicyLoss`, of which each of our controls is a part."""

    def __init__(self, loss: Any) -> None:
        self._loss = loss
        self._level = loss.is_correction_level

    @property
    def importance(self) -> str:
        """Which of the rules it follows."""
        return "none" if self._loss.is_correction_level == "off" else _MODES[self._loss.is_correction_mode]

    @importance.setter
    def importance(self, rule: str) -> None:
        if rule == "tis" and (self._level == "seq" or self._loss.is_correction_gating != "ratio"):
            raise ValueError("tis: OpenRLHF truncates the ratio of tokens only, and this run goes by another statistic")
        self._loss.is_correction_level = "off" if rule == "none" else self._level
        if rule != "none":
            self._loss.is_correction_mode = {ours: theirs for theirs, ours in _MODES.items()}[rule]

    @property
    def low(self) -> float:
        """Lower bound."""
        return float(self._loss.is_correction_threshold[0])

    @low.setter
    def low(self, bound: float) -> None:
        self._loss.is_correction_threshold = [bound, self._loss.is_correction_threshold[1]]

    @property
    def high(self) -> float:
        """Upper bound."""
        return float(self._loss.is_correction_threshold[1])

    @high.setter
    def high(self, bound: float) -> None:
        self._loss.is_correction_threshold = [self._loss.is_correction_threshold[0], bound]


def panel_of(loss: Any) -> Panel:
    """The knobs of a `PolicyLoss`."""
    rule, when = Rule(loss), {"liveness": Liveness.NEXT_ROLLOUT}
    rest: dict[str, Any] = dict(when)
    if loss.is_correction_level == "off":
        rest = restart("vLLM is asked for its log-probs at the start: is_correction_level=token, bounds may be wide")
    elif loss.policy_loss_type != "ppo":
        rest = restart("under GSPO the correction decides what the ratio itself is against")
    elif loss.is_correction_gating != "ratio":
        rest = restart("this run goes by a divergence, not by the ratio")
    level = "geometric" if loss.is_correction_level == "seq" else "token"
    return Panel(
        {
            "clip_low": Knob.attribute(loss, "clip_eps_low", shown=lower_width, **when),
            "clip_high": Knob.attribute(loss, "clip_eps_high", **when),
            "dual_clip": Knob.attribute(loss, "dual_clip", shown=dual_shown, told=dual_or_none, **when),
            "importance": Knob.attribute(rule, "importance", **rest),
            "importance_low": Knob.attribute(rule, "low", **rest),
            "importance_high": Knob.attribute(rule, "high", shown=band_shown, told=band_told, **rest),
            "importance_level": Knob.obeyed(level, **restart("set is_correction_level")),
        }
    )


def attach(trainer: Any, *, url: str | None = None, job: str | None = None, group: Any = None) -> Attachment | None:
    """Attach an `ActorPPOTrainer`, on every rank alike; None where it cannot be, as logged.

    Args:
        trainer: whose `actor_loss_fn` is measured and turned.
        url: of the agent, in place of the environment's `TRIMTAB_URL`.
        job: name of the run, in place of `TRIMTAB_JOB`.
        group: process group of the actor's ranks; all by default.
    """
    try:
        return _attached(trainer, url, job, group)
    except Exception as error:
        _log.error("trimtab: not attached to OpenRLHF: %s: %s", type(error).__name__, error)
        return None


def _attached(trainer: Any, url: str | None, job: str | None, group: Any) -> Attachment | None:
    loss = trainer.actor_loss_fn
    inner_forward, inner_train = loss.forward, trainer.ppo_train
    own_forward, own_train = vars(loss).get("forward"), vars(trainer).get("ppo_train")
    measures = getattr(trainer.strategy, "ring_attn_rank", 0) in (0, None)  # the others hold the same tokens
    steps = 0

    def undo() -> None:
        unwrap(loss, "forward", forward, own_forward)
        unwrap(trainer, "ppo_train", ppo_train, own_train)

    attachment = attach_worker(
        panel_of(loss),
        undo=undo,
        collective=lambda: torch_ranks(group),
        url=url,
        job=job,
        rollout_logprobs=loss.is_correction_level != "off",
    )
    if attachment is None:
        return None

    @wraps(inner_forward)
    def forward(
        log_probs: Any,
        old_log_probs: Any,
        advantages: Any,
        action_mask: Any = None,
        rollout_log_probs: Any = None,
        **given: Any,
    ) -> Any:
        if measures:
            with attachment.safely("PolicyLoss"):
                attachment.emitter.observe(
                    train_logprobs=log_probs.detach(),
                    old_logprobs=old_log_probs,
                    rollout_logprobs=rollout_log_probs,
                    advantages=advantages,
                    loss_mask=log_probs.detach() == log_probs.detach() if action_mask is None else action_mask,
                )
        return inner_forward(
            log_probs, old_log_probs, advantages, action_mask=action_mask, rollout_log_probs=rollout_log_probs, **given
        )

    @wraps(inner_train)
    def ppo_train(*given: Any, **named: Any) -> Any:
        nonlocal steps
        result = inner_train(*given, **named)
        attachment.end_step(step=steps, scalars=scalars_from(attachment, result, _SCALARS))
        steps += 1
        return result

    loss.forward, trainer.ppo_train = forward, ppo_train
    return attachment


_SCALARS = {"policy_loss": "loss", "actor_grad_norm": "grad_norm"}


def patch(trainer_class: Any = None) -> None:
    """Attach every `ActorPPOTrainer` that this process makes from now on. May be repeated.

    Args:
        trainer_class: OpenRLHF's by default.
    """
    if trainer_class is None:
        trainer_class = import_module("openrlhf.trainer.ray.ppo_actor").ActorPPOTrainer
    inner = trainer_class.__init__
    if hasattr(inner, "trimtab"):
        return

    @wraps(inner)
    def init(self: Any, *given: Any, **named: Any) -> None:
        inner(self, *given, **named)
        _ATTACHED.get(lambda: attach(self))

    vars(init)["trimtab"] = True
    trainer_class.__init__ = init
