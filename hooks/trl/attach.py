"""The one call that attaches a trainer of TRL, before it trains or while it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trimtab
from trimtab.hooks.attachment import Attachment
from trimtab.hooks.emitter import CLOSE_SECONDS
from trimtab.hooks.pause import Patience
from trimtab.hooks.records import RecordError
from trimtab.hooks.sigterm import flush_at_sigterm
from trimtab.hooks.transport.open import DEFAULT_SPOOL
from trimtab.hooks.trl.async_ import AsyncRide
from trimtab.hooks.trl.callback import TrimtabCallback
from trimtab.hooks.trl.heads import head_refusal
from trimtab.hooks.trl.panel import async_panel, sync_panel
from trimtab.hooks.trl.patches import Patches
from trimtab.hooks.trl.seams import check_seams, kind_of
from trimtab.hooks.trl.sync import SyncRide
from trimtab.hooks.trl.twin import Shadow, Twin
from trimtab.hooks.worker import torch_ranks

_MARK = "_trimtab_attachment"


def attach(
    trainer: Any,
    url: str,
    *,
    job: str,
    attempt: int | None = None,
    token: str | None = None,
    spool: str | Path | None = DEFAULT_SPOOL,
    head: int = 0,
    shadow: Shadow | Any = None,
    shadow_every: int = 1,
    patience: Patience | None = None,
) -> Attachment:
    """Ride a GRPOTrainer or an AsyncGRPOTrainer, or a subclass of one; every rank calls it alike.

    Only this instance is touched. `detach()` of what is returned, or the end of training, leaves it as it was.

    Args:
        trainer: it, before `train()` or while it runs.
        url: of the agent; see `trimtab.attach`, also for `job`, `attempt`, `token`, `spool` and `patience`.
        head: entries of the sampler's head to record for score centering. From a rollout function they are what it
            returns as `sampler_head_ids` and `sampler_head_logprobs`; vLLM is asked for them. 0 for none.
        shadow: makes a context in which the trained model computes in BF16, or is a model in BF16 that follows its
            weights; calibrated clipping needs one.
        shadow_every: generations from one with a twin to the next; each costs a forward pass of the batch, and one
            for each of its loss calls.

    Raises:
        SeamError: TRL is of a version whose private names differ; nothing was attached.
        ValueError: an argument that cannot be, or a trainer that is attached already; the message names it.
        RuntimeError: not every rank has called it within a minute.
    """
    kind = kind_of(trainer)
    check_seams(trainer, kind)
    if getattr(trainer, _MARK, None) is not None and getattr(trainer, _MARK).attached:
        raise RecordError("trainer: it is attached already; detach() the first attachment")
    if head < 0:
        raise RecordError(f"head: {head} is negative; give the number of entries, or 0 for none")
    ride: SyncRide | AsyncRide
    facts: dict[str, Any] = {"rollout_logprobs": True}
    if kind == "sync":
        refusal = head_refusal(trainer, head)
        recorded = 0 if refusal else head
        twin = None if shadow is None else Twin(shadow=shadow, every=shadow_every)
        ride = SyncRide(trainer, head=recorded, twin=twin)
        panel = sync_panel(trainer, head=refusal, shadow=twin is not None)
        facts = {
            "rollout_logprobs": bool(trainer.use_vllm or trainer.rollout_func is not None),
            "sampler_head": recorded,
            "shadow": twin is not None,
        }
    else:
        if head or shadow is not None:
            raise RecordError("head, shadow: the asynchronous trainer has neither; leave them out")
        ride, panel = AsyncRide(trainer), async_panel(trainer)
    own = panel.own()
    if own.conflict() is not None:
        own = trimtab.Controls()
    emitter = trimtab.attach(
        url,
        job=job,
        attempt=attempt,
        controls=own,
        capabilities=panel.capabilities(**facts),
        collective=_collective(trainer),
        token=token,
        spool=spool,
        patience=patience,
    )
    patches = Patches()
    patches.on_undo(flush_at_sigterm(emitter.flush, CLOSE_SECONDS))
    ride.attachment = Attachment(emitter, panel, patches.undo)
    callback = TrimtabCallback(ride)
    ride.wrap(patches)
    patches.on_undo(callback.put_back)  # done last: it may be taken off between two events of one step
    patches.on_undo(lambda: _without(trainer, callback))
    trainer.add_callback(callback)
    setattr(trainer, _MARK, ride.attachment)
    patches.on_undo(lambda: vars(trainer).pop(_MARK, None))
    return ride.attachment


def _without(trainer: Any, callback: TrimtabCallback) -> None:
    """Take the callback off by a new list: the handler may be going through the one that is there."""
    handler = trainer.callback_handler
    handler.callbacks = [each for each in handler.callbacks if each is not callback]


def _collective(trainer: Any) -> Any:
    """What joins the ranks, where there are several; all of them have to come."""
    if trainer.accelerator.num_processes == 1:
        return None
    if getattr(trainer, "is_in_train", False):
        raise RecordError(
            "trainer: it trains in several processes, which can only be joined before train(), by all of them: attach "
            "there, or read its log with `trimtab tail`"
        )
    return torch_ranks()
