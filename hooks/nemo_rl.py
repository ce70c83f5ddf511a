"""NeMo-RL (read: 0.6.0-dev at 7ea279abf): the loss object that the launcher passes to `grpo_train` measures and steers.

`attach(policy, loss_fn)` returns the loss to train with. It is sent to the workers anew with every step, so what the
driver changes on it holds from the next one on, on all of them. Nothing has to be set up in Ray, and the one slot for a
worker's set-up hook stays what it is; but trimtab has to be installed in the environment of the policy's workers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from trimtab.hooks.attachment import Attachment
from trimtab.hooks.bounds import band_shown, band_told, dual_or_none, dual_shown, lower_width
from trimtab.hooks.controls import Liveness
from trimtab.hooks.fleet import Caller, Fleet, RayCaller
from trimtab.hooks.knobs import Knob, Panel, restart
from trimtab.hooks.meter import METER
from trimtab.hooks.trainer_scalars import scalars_from
from trimtab.hooks.worker import attach_worker, unwrap

CONTROL_TABLE: dict[str, Liveness] = {
    "clip_low": Liveness.LIVE,
    "clip_high": Liveness.LIVE,
    "dual_clip": Liveness.LIVE,
    "kl_coef": Liveness.LIVE,
    "importance_low": Liveness.LIVE,
    "importance_high": Liveness.LIVE,
    "importance": Liveness.RESTART,
    "importance_level": Liveness.RESTART,
}
"""When what takes effect; all other controls are absent."""
_RULES = {"tis": "tis", "icepop": "mis", "seq-mask-tis": "mis"}

_log = logging.getLogger("trimtab")


class MeasuredLoss:
    """A `LossFunction` that measures what it is called with, and is otherwise `inner`.

    Args:
        inner: NeMo-RL's `ClippedPGLossFn`. Its attributes are read through this.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.measuring = True
        """False once it is detached: it is sent to the workers with every step, and those measure for nobody then."""

    def __getattr__(self, name: str) -> Any:
        if name in ("inner", "measuring") or name.startswith("__"):  # not there yet, as while it is unpickled
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __call__(self, next_token_logprobs: Any, data: Any, *rest: Any, **given: Any) -> Any:
        """The inner loss and its metrics."""
        try:
            if self.measuring:
                self._measure(next_token_logprobs, data)
        except Exception as error:
            METER.swallow("loss", error)
        return self.inner(next_token_logprobs, data, *rest, **given)

    def _measure(self, logprobs: Any, data: Any) -> None:
        # Log-probs are those of the next token, so all else starts at the second.
        forced = getattr(self.inner, "force_on_policy_ratio", False)
        mask = data["token_mask"][:, 1:] * data["sample_mask"].unsqueeze(-1)
        METER.observe(
            train_logprobs=logprobs.detach(),
            old_logprobs=logprobs.detach() if forced else data["prev_logprobs"][:, 1:],
            rollout_logprobs=data["generation_logprobs"][:, 1:],
            advantages=data["advantages"][:, 1:],
            loss_mask=mask,
        )


def panel_of(loss: Any) -> Panel:
    """The knobs of a `ClippedPGLossFn`."""
    kind = loss.truncated_importance_sampling_type
    band = {} if kind in _RULES else restart("start with truncated_importance_sampling_type set, bounds may be wide")
    kl = {} if loss.reference_policy_kl_penalty else restart("with a penalty of 0 no reference log-probs are computed")
    dual = restart("CISPO has no dual clip") if loss.use_cispo else {}
    low, high = "truncated_importance_sampling_ratio_min", "truncated_importance_sampling_ratio"
    rule = "tis" if kind is None and loss.use_importance_sampling_correction else _RULES.get(kind, "none")
    level = "sequence" if loss.sequence_level_importance_ratios else "token"
    return Panel(
        {
            "clip_low": Knob.attribute(loss, "ratio_clip_min", shown=lower_width),
            "clip_high": Knob.attribute(loss, "ratio_clip_max"),
            "dual_clip": Knob.attribute(loss, "ratio_clip_c", shown=dual_shown, told=dual_or_none, **dual),
            "kl_coef": Knob.attribute(loss, "reference_policy_kl_penalty", **kl),
            "importance_low": Knob.attribute(loss, low, shown=lambda bound: bound or 0.0, **band),
            "importance_high": Knob.attribute(loss, high, shown=band_shown, told=band_told, **band),
            "importance": Knob.obeyed(rule, **restart("metrics and their denominators are made when the loss is")),
            "importance_level": Knob.obeyed(level, **restart("metrics and their denominators are made with the loss")),
        }
    )


def attach(
    policy: Any, loss_fn: Any, *, url: str | None = None, job: str | None = None, caller: Caller | None = None
) -> tuple[Any, Attachment | None]:
    """The loss to pass to `grpo_train` in place of `loss_fn`, and the attachment.

    Where it cannot be attached they are `loss_fn` itself and None, and why is logged.

    Args:
        policy: NeMo-RL's `Policy`; its `train` is a step.
        loss_fn: its `ClippedPGLossFn`.
        url: of the agent, in place of the environment's `TRIMTAB_URL`.
        job: name of the run, in place of `TRIMTAB_JOB`.
        caller: reaches the policy's workers; Ray's by default.
    """
    measured = MeasuredLoss(loss_fn)
    own = vars(policy).get("train")
    wrapped: list[Callable[..., Any]] = []

    def undo() -> None:
        measured.measuring = False
        for train in wrapped:
            unwrap(policy, "train", train, own)

    try:
        attachment = attach_worker(
            panel_of(loss_fn),
            undo=undo,
            collective=lambda: Fleet(caller or RayCaller(lambda: policy.worker_group.workers)),
            url=url,
            job=job,
            rollout_logprobs=True,
        )
        if attachment is None:
            return loss_fn, None
        wrapped.append(_wrap_train(policy, attachment))
    except Exception as error:
        _log.error("trimtab: not attached to NeMo-RL: %s: %s", type(error).__name__, error)
        return loss_fn, None
    return measured, attachment


_SCALARS = {"loss": "loss", "grad_norm": "grad_norm"}


def _wrap_train(policy: Any, attachment: Attachment) -> Callable[..., Any]:
    inner: Callable[..., Any] = policy.train
    steps = 0

    @wraps(inner)
    def train(*given: Any, **named: Any) -> Any:
        nonlocal steps
        result = inner(*given, **named)
        attachment.end_step(step=steps, scalars=scalars_from(attachment, result, _SCALARS))
        steps += 1
        return result

    policy.train = train
    return train
