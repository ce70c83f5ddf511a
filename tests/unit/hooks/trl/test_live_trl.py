"""Controls that are overridden in a GRPOTrainer: its loss and every gradient are those of the reference objective."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import trl_runs as runs
from torch import Tensor

from trimtab.hooks.attachment import Attachment
from trimtab.hooks.calibration import ClipCalibration
from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.trl import attach
from trimtab.trainer.objective import LossInputs, policy_loss

B, T, V = 8, 6, 16


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """TRL and transformers warn of things that are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Case:
    """One trainer with one batch that is off-policy, and off its sampler."""

    def __init__(self, folder: Path, *, seed: int = 0, **settings: Any) -> None:
        settings = {"num_iterations": 2, "steps_per_generation": 1, "temperature": 0.7} | settings
        self.trainer = runs.grpo(folder, sampler=runs.Sampler(head=True), **settings)
        self.trainer.current_gradient_accumulation_steps = 1
        self.trainer.model.train()
        g = torch.Generator().manual_seed(seed)
        lengths = torch.randint(1, T + 1, (B,), generator=g)
        self.mask = (torch.arange(T) < lengths[:, None]).int()
        self.inputs: dict[str, Any] = {
            "prompt_ids": torch.randint(0, 10, (B, 5), generator=g),
            "prompt_mask": torch.ones(B, 5, dtype=torch.long),
            "completion_ids": torch.randint(0, V, (B, T), generator=g),
            "completion_mask": self.mask,
            "advantages": torch.randn(B, generator=g),
            "num_items_in_batch": self.mask.sum(),
        }
        with torch.no_grad():
            logprobs = self.logprobs()
        self.old_head = torch.log_softmax(logprobs + 0.2 * torch.randn(logprobs.shape, generator=g), -1)
        self.head = torch.log_softmax(self.old_head + 0.4 * torch.randn(logprobs.shape, generator=g), -1)
        chosen = self.inputs["completion_ids"].unsqueeze(-1)
        self.inputs |= {
            "old_per_token_logps": self.old_head.gather(-1, chosen).squeeze(-1),
            "sampling_per_token_logps": self.head.gather(-1, chosen).squeeze(-1),
            "sampler_head_ids": torch.arange(V).expand(B, T, V).contiguous(),
            "sampler_head_logprobs": self.head,
            "old_head_logprobs": self.old_head,
        }

    def logprobs(self) -> Tensor:
        """[B, T, V] from a plain forward pass."""
        ids = torch.cat([self.inputs["prompt_ids"], self.inputs["completion_ids"]], 1)
        logits = self.trainer.model(input_ids=ids).logits[:, 4:-1]
        return torch.log_softmax(logits / self.trainer.temperature, -1)

    def gradients(self, loss: Tensor) -> dict[str, Tensor]:
        self.trainer.model.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        found = {name: value.grad.clone() for name, value in self.trainer.model.named_parameters()}
        self.trainer.model.zero_grad()
        return found

    def reference(self, controls: Controls, bounds: ClipBounds | None = None) -> Tensor:
        logprobs = self.logprobs()
        tensors = LossInputs(
            train_logprobs=logprobs.gather(-1, self.inputs["completion_ids"].unsqueeze(-1)).squeeze(-1),
            old_logprobs=self.inputs["old_per_token_logps"],
            rollout_logprobs=self.inputs["sampling_per_token_logps"],
            advantages=self.inputs["advantages"].unsqueeze(1),
            mask=self.mask.float(),
            train_head_logprobs=logprobs,
            sampler_head_logprobs=self.head,
            old_head_logprobs=self.old_head,
        )
        return policy_loss(tensors, controls, bounds or ClipBounds.nominal(controls)).loss


def steered(case: Case, **overrides: Any) -> Attachment:
    attachment = attach(case.trainer, "memory:", job="run", head=V, shadow=torch.no_grad)
    runs.wish(attachment, 1, **overrides)
    attachment.end_step(step=0)
    assert attachment.emitter.overrides == overrides
    return attachment


OVERRIDES: list[dict[str, Any]] = [
    {"clip_low": 0.05, "clip_high": 0.01},
    {"dual_clip": 1.25},
    {"ratio_reference": "sampler"},
    {"ratio_reference": "sampler", "clip_low": 0.5, "dual_clip": 2.0},
    {"importance": "tis", "importance_low": 0.8, "importance_high": 1.1},
    {"importance": "mis", "importance_low": 0.8, "importance_high": 1.2},
    {"importance": "mis", "importance_low": 0.8, "importance_high": 1.2, "importance_inside": "one"},
    {"importance": "tis", "importance_level": "sequence", "importance_high": 1.3},
    {"importance": "mis", "importance_level": "geometric", "importance_low": 0.9, "importance_high": 1.1},
    {"centering": True},
    {"centering": True, "ratio_reference": "sampler"},
    {"centering": True, "importance": "tis", "importance_high": 1.2, "clip_low": 0.1},
]


@pytest.mark.parametrize("overrides", OVERRIDES, ids=lambda overrides: " ".join(overrides))
def test_an_override_makes_the_reference_loss_of_it(tmp_path: Path, overrides: dict[str, Any]) -> None:
    case = Case(tmp_path)
    attachment = steered(case, **overrides)
    found = case.gradients(case.trainer.compute_loss(case.trainer.model, case.inputs))
    wanted = case.gradients(case.reference(attachment.controls))
    untouched = case.gradients(case.reference(Controls()))
    assert attachment.failures == 0
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=2e-4, atol=2e-6)
    assert any(not torch.allclose(untouched[name], gradient, rtol=1e-2) for name, gradient in wanted.items())


@pytest.mark.parametrize(
    ("loss_type", "aggregation"),
    [("grpo", "sequence_mean"), ("bnpo", "token_mean"), ("dapo", "token_mean"), ("dr_grpo", "fixed_length")],
)
def test_the_centering_term_is_aggregated_as_the_loss_is(tmp_path: Path, loss_type: str, aggregation: str) -> None:
    case = Case(tmp_path, loss_type=loss_type, max_completion_length=T)
    attachment = steered(case, centering=True, ratio_reference="sampler")
    assert attachment.controls.aggregation == aggregation
    found = case.gradients(case.trainer.compute_loss(case.trainer.model, case.inputs))
    for name, gradient in case.gradients(case.reference(attachment.controls)).items():
        torch.testing.assert_close(found[name], gradient, rtol=2e-4, atol=2e-6)


def test_the_copy_is_changed_and_not_the_buffered_batch(tmp_path: Path) -> None:
    case = Case(tmp_path)
    steered(case, importance="tis", importance_high=1.1)
    before = dict(case.inputs)
    case.trainer.compute_loss(case.trainer.model, case.inputs)
    assert case.inputs.keys() == before.keys()
    assert all(case.inputs[name] is value for name, value in before.items())


def test_a_token_without_a_sampler_log_prob_is_neither_weighted_nor_clipped(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.inputs["sampling_per_token_logps"] = torch.full((B, T), math.nan)
    steered(case, importance="mis", importance_low=0.99, importance_high=1.01)
    found = case.gradients(case.trainer.compute_loss(case.trainer.model, case.inputs))
    case.inputs["sampling_per_token_logps"] = case.inputs["old_per_token_logps"]
    for name, gradient in case.gradients(case.reference(Controls())).items():
        torch.testing.assert_close(found[name], gradient, rtol=2e-4, atol=2e-6)


def test_calibrated_bounds_clip_the_call_and_are_gone_behind_it(tmp_path: Path) -> None:
    case = Case(tmp_path)
    attachment = steered(case, clip_mode="calibrated")
    bounds = ClipBounds(low=-0.9, high=0.35)

    class Calibrated(ClipCalibration):
        def bounds(self, controls: Controls) -> ClipBounds:  # noqa: ARG002
            return bounds

    ride = next(each for each in case.trainer.callback_handler.callbacks if hasattr(each, "_ride"))._ride
    ride._calibration = Calibrated()
    found = case.gradients(case.trainer.compute_loss(case.trainer.model, case.inputs))
    for name, gradient in case.gradients(case.reference(attachment.controls, bounds)).items():
        torch.testing.assert_close(found[name], gradient, rtol=2e-4, atol=2e-6)
    assert (case.trainer.epsilon_low, case.trainer.epsilon_high) == (0.2, 0.2)
    ride.end_step(1)
    assert runs.sent(attachment)[-1].clip_bounds == bounds


def test_the_learning_rate_is_scaled_for_every_step_and_no_checkpoint_knows(tmp_path: Path) -> None:
    trainer = runs.grpo(tmp_path, steps=4, lr_scheduler_type="linear", max_grad_norm=1e-6)
    attachment = attach(trainer, "memory:", job="run")
    runs.wish(attachment, 1, lr_scale=0.0)
    moved, before, rates = [], runs.weights(trainer), []
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
            nonlocal before
            now = runs.weights(trainer)
            moved.append(not runs.same(before, now))
            rates.append(kwargs["lr_scheduler"].get_last_lr()[0])
            before = now
            if state.global_step == 3:
                runs.wish(attachment, 2)

    trainer.add_callback(Watch())
    trainer.train()
    assert moved == [True, False, False, False]  # the wish at step 3 is heard when step 4 ends
    assert rates == pytest.approx([7.5e-4, 5e-4, 2.5e-4, 0.0])


def test_clip_bounds_are_turned_live_and_back(tmp_path: Path) -> None:
    trainer = runs.grpo(tmp_path, steps=6, epsilon=10.0)
    attachment = attach(trainer, "memory:", job="run")
    runs.wish(attachment, 1, clip_low=0.0, clip_high=0.0)
    seen = []
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
            seen.append((trainer.epsilon_low, trainer.epsilon_high))
            if state.global_step == 3:
                runs.wish(attachment, 2)

    trainer.add_callback(Watch())
    trainer.train()
    assert seen == [(0.0, 0.0)] * 3 + [(10.0, 10.0)] * 3
    first, *rest = runs.sent(attachment)
    assert first.applied.clip_low == 1.0  # never clips
    assert first.applied.clip_high == 10.0
    assert [summary.applied.clip_low for summary in rest] == [0.0, 0.0, 0.0, 1.0, 1.0]


def test_a_weight_on_the_reference_is_never_taken_to_zero(tmp_path: Path) -> None:
    trainer = runs.grpo(tmp_path, steps=4, beta=0.05)
    attachment = attach(trainer, "memory:", job="run")
    runs.wish(attachment, 1, kl_coef=0.0)
    trainer.train()
    assert attachment.failures == 0
    assert runs.sent(attachment)[-1].applied.kl_coef == 0.0
    assert "reference_kl" in runs.sent(attachment)[-1].scalars
    assert trainer.beta == 0.05  # as it was, after the end


def test_the_twin_is_measured_on_both_sides_of_the_ratio(tmp_path: Path) -> None:
    trainer = runs.grpo(tmp_path, steps=8, sampler=runs.Sampler())
    attachment = attach(trainer, "memory:", job="run", shadow=torch.no_grad, shadow_every=2)
    trainer.train()
    assert attachment.failures == 0
    for summary in runs.sent(attachment):
        assert ("shadow" in summary.sketches) == (summary.step <= 4)  # the first of two generations
    last = runs.sent(attachment)[3]
    # A context that changes nothing is a twin that is the same.
    assert last.sketches["shadow"].sum("log_ratio_sq") == pytest.approx(last.sketches["update"].sum("log_ratio_sq"))


def test_the_head_of_a_rollout_function_travels_with_the_batch(tmp_path: Path) -> None:
    trainer = runs.grpo(tmp_path, steps=4, sampler=runs.Sampler(head=True))
    attachment = attach(trainer, "memory:", job="run", head=V)
    runs.wish(attachment, 1, centering=True, ratio_reference="recomputed")
    trainer.train()
    assert attachment.failures == 0
    distances = [summary.scalars.get("head_tv") for summary in runs.sent(attachment)]
    assert distances[0] is None
    assert all(each is not None and 0.02 < each < 0.3 for each in distances[1:])


@pytest.mark.parametrize(
    ("settings", "head", "reason"),
    [
        ({}, 0, "attach was given no `head`"),
        ({"top_p": 0.9}, V, "cut by top_p"),
        ({"loss_type": "luspo"}, V, "luspo weighs whole sequences"),
        ({"importance_sampling_level": "sequence"}, V, "the ratio is the sequence's (GSPO)"),
        ({"top_entropy_quantile": 0.2}, V, "top_entropy_quantile leaves tokens out"),
    ],
)
def test_centering_is_refused_with_the_reason(tmp_path: Path, settings: dict[str, Any], head: int, reason: str) -> None:
    trainer = runs.grpo(tmp_path, sampler=runs.Sampler(head=True), **settings)
    attachment = attach(trainer, "memory:", job="run", head=head)
    refusal = attachment.emitter.capabilities.refusal("centering", True)
    assert refusal is not None
    assert reason in refusal
    attachment.detach()


def test_a_dual_clip_that_would_clip_rewarded_tokens_too_is_refused(tmp_path: Path) -> None:
    trainer = runs.grpo(tmp_path, steps=4)
    attachment = attach(trainer, "memory:", job="run")
    runs.wish(attachment, 1, dual_clip=1.1)
    trainer.train()
    assert runs.sent(attachment)[-1].refusals == (
        "dual_clip: 1.1 would clip rewarded tokens too; give 1.2 (1 + clip_high) or more",
    )


def test_a_dual_clip_is_in_the_loss_and_not_in_the_arguments_that_others_share(tmp_path: Path) -> None:
    case = Case(tmp_path)
    steered(case, dual_clip=1.25)
    seen = []
    score = case.trainer._get_per_token_logps_and_entropies
    case.trainer._get_per_token_logps_and_entropies = lambda *given, **named: (
        seen.append(case.trainer.args.delta) or score(*given, **named)
    )
    case.trainer.compute_loss(case.trainer.model, case.inputs)
    assert (seen, case.trainer.args.delta) == ([1.25], None)


@pytest.mark.parametrize("name", ["objective", "aggregation", "advantage"])
def test_what_trl_reads_in_several_places_is_for_a_restart(tmp_path: Path, name: str) -> None:
    attachment = attach(runs.grpo(tmp_path), "memory:", job="run")
    refusal = attachment.emitter.capabilities.refusal(name, "gspo")
    assert refusal is not None
    assert refusal.startswith(f"{name}: restart in this trainer: ")
    attachment.detach()


def test_a_run_is_paused_at_the_end_of_a_step(tmp_path: Path) -> None:
    from trimtab.hooks.pause import Patience

    trainer = runs.grpo(tmp_path, steps=2)
    attachment = attach(trainer, "memory:", job="run", patience=Patience(seconds=0.2, every=0.05))
    runs.wish(attachment, 1, paused=True)
    trainer.train()
    refusals = runs.sent(attachment)[-1].refusals
    assert refusals == ("paused: over after 0.2 s, the longest wait that is allowed",)
