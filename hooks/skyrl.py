"""SkyRL (read: 0.4.0): a callback on the driver reports and steers, and the policy losses measure in the workers.

The callback has each mini-batch's loss computed by the measuring twin of the configured one, and gives it what is
changed: the dispatch takes `loss_fn` and `loss_fn_config`, which the trainer's own loop leaves out. The configuration
stays as it is, in the trainer and in the workers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial, wraps
from importlib import import_module
from typing import Any

from trimtab.hooks.attachment import Attachment
from trimtab.hooks.bounds import band_shown, band_told, dual_shown, dual_told, lower_width
from trimtab.hooks.controls import Liveness
from trimtab.hooks.fleet import Caller, Fleet, RayCaller
from trimtab.hooks.guard import Guard
from trimtab.hooks.knobs import Knob, Panel, restart
from trimtab.hooks.meter import METER
from trimtab.hooks.trainer_scalars import scalars_from
from trimtab.hooks.worker import attach_worker, unwrap

CONTROL_TABLE: dict[str, Liveness] = {
    "clip_low": Liveness.LIVE,
    "clip_high": Liveness.LIVE,
    "dual_clip": Liveness.LIVE,
    "importance": Liveness.LIVE,
    "importance_high": Liveness.LIVE,
    "importance_level": Liveness.RESTART,
    "kl_coef": Liveness.RESTART,
}
"""When what takes effect; all other controls are absent."""
PREFIX = "trimtab_"
"""Of the losses that measure."""
_AGAINST_SAMPLER = ("rollout_is", "dppo", "importance_sampling")
"""Losses whose ratio is against the sampler."""

_log = logging.getLogger("trimtab")


class MeasuredLoss:
    """A policy loss that measures what it is called with.

    It is a class and no closure since SkyRL sends it to the workers, where its measurements have to be the process's.

    Args:
        name: of the policy loss.
        inner: that loss.
    """

    def __init__(self, name: str, inner: Callable[..., Any]) -> None:
        self.name, self.inner = name, inner

    def __call__(
        self,
        log_probs: Any,
        old_log_probs: Any,
        advantages: Any,
        config: Any,
        loss_mask: Any = None,
        rollout_logprobs: Any = None,
    ) -> Any:
        """The inner loss and its metrics."""
        try:
            METER.observe(
                "sampler" if self.name in _AGAINST_SAMPLER else "recomputed",
                train_logprobs=log_probs.detach(),
                old_logprobs=old_log_probs,
                rollout_logprobs=rollout_logprobs,
                advantages=advantages,
                loss_mask=log_probs.detach() == log_probs.detach() if loss_mask is None else loss_mask,
            )
        except Exception as error:
            METER.swallow("policy_loss", error)
        return self.inner(
            log_probs, old_log_probs, advantages, config=config, loss_mask=loss_mask, rollout_logprobs=rollout_logprobs
        )


def register_losses(registry: Any = None) -> set[str]:
    """Register `trimtab_NAME`, which measures, for every policy loss `NAME`. On the driver; may be repeated.

    The workers take from the driver what they do not have themselves, so it has to be another name than SkyRL's own.

    Args:
        registry: SkyRL's `PolicyLossRegistry` by default.

    Returns:
        The names of all losses that there are now.
    """
    if registry is None:
        registry = import_module("skyrl.backends.skyrl_train.utils.ppo_utils").PolicyLossRegistry
    there = set(registry.list_available())
    for name in sorted(there):
        if not name.startswith(PREFIX) and name != "cross_entropy" and PREFIX + name not in there:
            registry.register(PREFIX + name, MeasuredLoss(name, registry.get(name)))
    return set(registry.list_available())


class Steering:
    """What the loss is to be given in place of its configuration.

    Args:
        algorithm: the trainer's `cfg.trainer.algorithm`.
        recorded: the sampler's log-probs are.
        refusal: why the loss takes nothing; empty where it does.
    """

    def __init__(self, algorithm: Any, *, recorded: bool, refusal: str = "") -> None:
        self._algorithm, self._recorded = algorithm, recorded
        self._refused = restart(refusal) if refusal else {}
        self._correction = algorithm.off_policy_correction
        level = self._correction.tis_ratio_type
        self._level = level or "token"
        self._high = f"{self._level}_tis_ratio_clip_high"
        self.own: dict[str, Any] = {
            "eps_clip_low": algorithm.eps_clip_low,
            "eps_clip_high": algorithm.eps_clip_high,
            "clip_ratio_c": algorithm.clip_ratio_c,
            "tis_ratio_type": level,
            self._high: getattr(self._correction, self._high),
        }
        self.wanted = dict(self.own)

    def config(self) -> dict[str, Any]:
        """`loss_fn_config`; empty where the run has its own controls."""
        changed = {name: value for name, value in self.wanted.items() if value != self.own[name]}
        nested = {name: changed.pop(name) for name in ("tis_ratio_type", self._high) if name in changed}
        return changed | ({"off_policy_correction": nested} if nested else {})

    def panel(self) -> Panel:
        """All of it as knobs."""
        dual = {} if self._algorithm.policy_loss_type == "dual_clip" else restart("set policy_loss_type=dual_clip")
        rest = {} if self._recorded else restart("start with generator.sampling_params.logprobs set")
        return Panel(
            {
                "clip_low": self._knob("eps_clip_low", shown=lower_width),
                "clip_high": self._knob("eps_clip_high"),
                "dual_clip": self._knob("clip_ratio_c", shown=dual_shown, told=dual_told, **dual),
                "importance": self._knob(
                    "tis_ratio_type",
                    shown=lambda level: "none" if level is None else "tis",
                    told=self._rule,
                    **rest,
                ),
                "importance_high": self._knob(self._high, shown=band_shown, told=band_told, **rest),
                "importance_level": Knob.obeyed(self._level, **restart("set off_policy_correction.tis_ratio_type")),
                "kl_coef": Knob.obeyed(
                    self._algorithm.kl_loss_coef if self._algorithm.use_kl_loss else 0.0,
                    **restart("the workers read kl_loss_coef from their own copy of the configuration"),
                ),
            }
        )

    def _rule(self, importance: str) -> str | None:
        if importance == "mis":
            raise ValueError("mis: SkyRL masks by settings that are fixed when it starts; tis and none can be changed")
        return self._level if importance == "tis" else None

    def _knob(self, name: str, **rest: Any) -> Knob:
        put = lambda value: self.wanted.update({name: value})  # noqa: E731
        return Knob(get=lambda: self.wanted[name], put=put, **(rest | self._refused))


def callback(
    *,
    url: str | None = None,
    job: str | None = None,
    caller: Callable[[Any], Caller] | None = None,
    registry: Any = None,
) -> Any:
    """A `TrainingCallback` for `RayPPOTrainer(callbacks=[...])` or `trainer.add_callback`; nothing in it raises.

    `FullyAsyncRayPPOTrainer` takes no callbacks: give it to none, and attach by hand (docs/attach/skyrl.md).

    Args:
        url: of the agent, in place of the environment's `TRIMTAB_URL`.
        job: name of the run, in place of `TRIMTAB_JOB`.
        caller: reaches the workers of a trainer; Ray's by default.
        registry: SkyRL's `PolicyLossRegistry` by default.
    """
    from skyrl.train.utils.callbacks import TrainingCallback

    return _callback_class(TrainingCallback)(partial(attach, url=url, job=job, caller=caller, registry=registry))


def _callback_class(base: type) -> type:
    class TrimtabCallback(base):  # type: ignore[misc]
        """Attaches when training starts, ends the step, and detaches when training ends."""

        def __init__(self, attached: Callable[[Any], Attachment | None]) -> None:
            super().__init__()
            self._attached = attached
            self._guard = Guard("skyrl")
            self._step = -1
            self.attachment: Attachment | None = None

        def on_train_start(self, trainer: Any, callback_input: Any, control: Any) -> None:  # noqa: ARG002
            """Attach."""
            with self._guard.swallowing("on_train_start"):
                self.attachment = self._attached(trainer)

        def on_step_end(self, trainer: Any, callback_input: Any, control: Any) -> None:  # noqa: ARG002
            """Report."""
            with self._guard.swallowing("on_step_end"):
                if self.attachment is not None:
                    scalars = scalars_from(self.attachment, getattr(callback_input, "metrics", None), _SCALARS)
                    step = self.attachment.tried("global_step", lambda: int(callback_input.global_step))
                    self._step = self._step + 1 if step is None else step
                    self.attachment.end_step(step=self._step, scalars=scalars)

        def on_train_end(self, trainer: Any, callback_input: Any, control: Any) -> None:  # noqa: ARG002
            """Detach."""
            with self._guard.swallowing("on_train_end"):
                if self.attachment is not None:
                    self.attachment.detach()

    return TrimtabCallback


_SCALARS = {"policy_loss": "loss", "grad_norm": "grad_norm"}


def attach(
    trainer: Any,
    *,
    url: str | None = None,
    job: str | None = None,
    caller: Callable[[Any], Caller] | None = None,
    registry: Any = None,
) -> Attachment | None:
    """Attach a trainer of SkyRL whose dispatch is there; whoever calls it then calls `end_step`, as `callback` does.

    None, with the reason logged, where it cannot be; for the arguments see `callback`.
    """
    try:
        return _attached(trainer, url, job, caller, registry)
    except Exception as error:
        _log.error("trimtab: not attached to SkyRL: %s: %s", type(error).__name__, error)
        return None


def _attached(
    trainer: Any, url: str | None, job: str | None, caller: Callable[[Any], Caller] | None, registry: Any
) -> Attachment | None:
    dispatch, config = trainer.dispatch, trainer.cfg
    named = config.trainer.algorithm.policy_loss_type
    name = str(getattr(named, "value", named))
    measured = PREFIX + name in register_losses(registry)
    sampling = config.generator.sampling_params
    recorded = getattr(sampling, "logprobs", None) is not None
    refusal = ""
    if not measured:
        refusal = (
            f"policy_loss_type={name} has no loss that measures: it is no policy's, or not registered on the driver"
        )
    if refusal:
        _log.warning("trimtab: nothing is measured in SkyRL's workers: %s", refusal)
    steering = Steering(config.trainer.algorithm, recorded=recorded, refusal=refusal)
    inner, own = dispatch.forward_backward_from_staged, vars(dispatch).get("forward_backward_from_staged")

    def undo() -> None:
        unwrap(dispatch, "forward_backward_from_staged", forward_backward, own)

    attachment = attach_worker(
        steering.panel(),
        undo=undo,
        collective=lambda: Fleet(_ray(dispatch) if caller is None else caller(trainer)),
        url=url,
        job=job,
        rollout_logprobs=recorded,
    )
    if attachment is None:
        return None

    @wraps(inner)
    def forward_backward(model: str, chunk_refs: Any, **given: Any) -> Any:
        changed: dict[str, Any] = {}
        with attachment.safely("loss_fn_config"):
            changed = steering.config()
        if measured and attachment.attached and model == "policy" and given.get("loss_fn") is None:
            given["loss_fn"] = PREFIX + name
            if changed and given.get("loss_fn_config") is None:
                given["loss_fn_config"] = changed
        return inner(model, chunk_refs, **given)

    dispatch.forward_backward_from_staged = forward_backward
    return attachment


def _ray(dispatch: Any) -> Caller:
    return RayCaller(lambda: [info.handle for info in dispatch._actor_groups["policy"].actor_infos])
