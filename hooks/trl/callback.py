"""Where a step of transformers' Trainer begins and ends, and its learning rate for the one moment that it counts."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from trimtab.hooks.trl.async_ import AsyncRide
from trimtab.hooks.trl.sync import SyncRide


class TrimtabCallback(TrainerCallback):
    """Reports each optimizer step, and scales its learning rate.

    The rate is scaled for the optimizer's step alone and put back behind it, so that the scheduler, its base rates and
    every checkpoint hold the run's own; a scale therefore lasts for as long as it is in effect, under any scheduler.
    """

    def __init__(self, ride: SyncRide | AsyncRide) -> None:
        self._ride = ride
        self._scaled: list[tuple[dict[str, Any], Any, Any]] = []
        """Groups of parameters whose rate is scaled now: the group, its own rate, the scaled one."""
        self._reported = False

    def put_back(self) -> None:
        """Give every group its own rate, unless somebody has given it another since."""
        while self._scaled:
            group, rate, scaled = self._scaled.pop()
            if group["lr"] is scaled:
                group["lr"] = rate

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Go on as a new attempt where steps were reported before: `train()` ended by an error and was called again."""
        attachment = self._ride.attachment
        with attachment.safely("on_train_begin"):
            if self._reported and attachment.attached:
                attachment.emitter.begin_attempt(attachment.emitter.attempt + 1, attachment.panel.own())

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Scale the learning rates."""
        with self._ride.attachment.safely("lr_scale"):
            scale = self._ride.attachment.controls.lr_scale
            if scale != 1.0 and self._ride.attachment.attached:
                for group in kwargs["optimizer"].param_groups:
                    rate, scaled = group["lr"], group["lr"] * scale
                    self._scaled.append((group, rate, scaled))
                    group["lr"] = scaled

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Put the learning rates back."""
        with self._ride.attachment.safely("lr_scale"):
            self.put_back()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Report the step, and wait where it is to be paused."""
        attachment = self._ride.attachment
        if attachment.attached:
            with attachment.safely("on_step_end"):
                self._ride.end_step(state.global_step)
                self._reported = True
                attachment.emitter.wait_while_paused()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Deliver what is pending, and leave the trainer as it was."""
        self._ride.attachment.detach()
