"""What goes wrong in a GRPOTrainer's training, or beside it, and must not come of the adapter."""

from __future__ import annotations

import copy
import math
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import trl_runs as runs
from transformers import TrainerCallback

from trimtab.hooks.calibration import ClipCalibration
from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.records import RecordError
from trimtab.hooks.trl import attach


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """TRL and transformers warn of things that are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def ride_of(trainer: Any) -> Any:
    return next(each for each in trainer.callback_handler.callbacks if hasattr(each, "_ride"))._ride


def with_dropout(trainer: Any) -> Any:
    """Its model drops a third of what its layer gives."""
    layer = trainer.model.model.layers[0]
    layer.mlp = torch.nn.Sequential(layer.mlp, torch.nn.Dropout(0.3))
    return trainer


@pytest.mark.parametrize("value", [1000.0, math.inf])
def test_own_values_beyond_our_bounds_stay_as_they_are(tmp_path: Path, value: float) -> None:
    trainer = runs.grpo(tmp_path, steps=2, epsilon=value, epsilon_high=value, delta=0.9)
    attachment = attach(trainer, "memory:", job="run")
    trainer.train()
    assert (trainer.epsilon_low, trainer.epsilon_high, trainer.args.delta) == (value, value, 0.9)
    applied = runs.sent(attachment)[-1].applied
    assert (applied.clip_low, applied.clip_high, applied.dual_clip) == (1.0, 100.0, 1.0)


@pytest.mark.parametrize("extra", [{}, {"head": 16}, {"shadow": torch.no_grad}], ids=["plain", "head", "twin"])
def test_a_run_with_dropout_draws_the_same_numbers(tmp_path: Path, extra: dict[str, Any]) -> None:
    alone = with_dropout(runs.grpo(tmp_path, sampler=runs.Sampler(head=True)))
    alone.train()
    ridden = with_dropout(runs.grpo(tmp_path, sampler=runs.Sampler(head=True)))
    attachment = attach(ridden, "memory:", job="run", **extra)
    ridden.train()
    assert attachment.failures == 0
    assert runs.same(runs.weights(alone), runs.weights(ridden))


def test_losses_of_both_infinities_are_told_as_such_and_the_step_is_sent(tmp_path: Path) -> None:
    trainer = runs.grpo(tmp_path, steps=1)
    attachment = attach(trainer, "memory:", job="run")
    ride = ride_of(trainer)
    ride._losses = [math.inf, -math.inf]
    ride.end_step(1)
    ride.end_step(2)
    attachment.detach()
    first, second = runs.sent(attachment)
    assert math.isnan(first.scalars["loss"])
    assert "loss" not in second.scalars
    assert attachment.failures == 0


def test_centering_without_a_head_in_the_batch_is_refused_and_said(tmp_path: Path) -> None:
    class Forgetful(runs.Sampler):
        def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
            found = super().__call__(prompts, trainer)
            if trainer.state.global_step >= 4:
                del found["sampler_head_ids"]
            return found

    trainer = runs.grpo(tmp_path, steps=8, sampler=Forgetful(head=True))
    attachment = attach(trainer, "memory:", job="run", head=16)
    runs.wish(attachment, 1, centering=True)
    trainer.train()
    last = runs.sent(attachment)[-1]
    assert last.applied.centering is False
    assert last.refusals == ("centering: no sampler head came with this batch",)


def test_a_schedule_of_the_run_s_own_goes_on_under_a_scaled_rate(tmp_path: Path) -> None:
    seen = []

    class Halving(TrainerCallback):
        def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
            kwargs["optimizer"].param_groups[0]["lr"] = 1e-3 * 0.5 ** (state.global_step + 1)

    class Watch(TrainerCallback):
        def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
            seen.append(kwargs["optimizer"].param_groups[0]["lr"])

    trainer = runs.grpo(tmp_path, steps=4)
    trainer.add_callback(Halving())
    attachment = attach(trainer, "memory:", job="run")
    trainer.add_callback(Watch())
    runs.wish(attachment, 1, lr_scale=0.5)
    trainer.train()
    assert seen == [5e-4, 2.5e-4, 1.25e-4, 6.25e-5]


def test_callbacks_that_were_added_later_are_told_of_the_end(tmp_path: Path) -> None:
    told = []

    class Late(TrainerCallback):
        def on_train_end(self, *_: Any, **__: Any) -> None:
            told.append("end")

    trainer = runs.grpo(tmp_path, steps=1)
    attach(trainer, "memory:", job="run")
    trainer.add_callback(Late())
    trainer.train()
    assert told == ["end"]


def test_training_that_ended_by_an_error_goes_on_as_another_attempt(tmp_path: Path) -> None:
    class Once(runs.Sampler):
        failed = False

        def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
            if trainer.state.global_step >= 4 and not self.failed:
                self.failed = True
                raise OSError("the reward's server is away")
            return super().__call__(prompts, trainer)

    trainer = runs.grpo(tmp_path, steps=6, sampler=Once())
    attachment = attach(trainer, "memory:", job="run", attempt=3)
    with pytest.raises(OSError, match="away"):
        trainer.train()
    trainer.train()
    keys = [(summary.attempt, summary.step) for summary in runs.sent(attachment)]
    assert keys == [(3, step) for step in range(1, 5)] + [(4, step) for step in range(1, 7)]


def test_detached_in_the_middle_of_a_loss_call_it_leaves_the_run_s_own_bounds(tmp_path: Path) -> None:
    class Calibrated(ClipCalibration):
        def bounds(self, controls: Controls) -> ClipBounds:  # noqa: ARG002
            return ClipBounds(low=-0.9, high=0.35)

        def observed(self, sample: Any, steps: int = 1) -> ClipCalibration:  # noqa: ARG002
            return self

    trainer = runs.grpo(tmp_path, steps=4, epsilon=0.3)
    attachment = attach(trainer, "memory:", job="run", shadow=torch.no_grad)
    ride_of(trainer)._calibration = Calibrated()
    runs.wish(attachment, 1, clip_low=0.1, clip_mode="calibrated")
    score = trainer._get_per_token_logps_and_entropies

    def scored(*given: Any, **named: Any) -> Any:
        if trainer.state.global_step == 2 and torch.is_grad_enabled():
            assert trainer.epsilon_low == pytest.approx(1 - math.exp(-0.9))  # in the call
            other = threading.Thread(target=attachment.detach)
            other.start()
            other.join()
        return score(*given, **named)

    trainer._get_per_token_logps_and_entropies = scored
    trainer.train()
    assert not attachment.attached
    assert (trainer.epsilon_low, trainer.epsilon_high) == (0.3, 0.3)


def test_ranks_that_train_already_cannot_be_joined(tmp_path: Path) -> None:
    trainer = copy.copy(runs.grpo(tmp_path))
    trainer.accelerator = SimpleNamespace(num_processes=2)
    trainer.is_in_train = True
    with pytest.raises(RecordError, match=r"can only be joined before train\(\), by all of them"):
        attach(trainer, "memory:", job="run")
    assert "compute_loss" not in vars(trainer)
