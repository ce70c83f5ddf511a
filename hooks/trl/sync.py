"""TRL's GRPOTrainer, ridden: what is read from its batches and losses, and how its loss is steered.

A loss call makes one forward pass through `_get_per_token_logps_and_entropies`; what comes out of it is seen there, and
the copy of the inputs that TRL goes on with is changed there to what the controls say. Old and reference log-probs go
through the same method without gradient, and evaluation through the same loss: both are let pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from trimtab.hooks.attachment import Attachment
from trimtab.hooks.calibration import ClipCalibration
from trimtab.hooks.calibration_sample import CalibrationSample
from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.trl.grad_norm import GradNorm
from trimtab.hooks.trl.heads import IDS, LOGPROBS, VLLMHead, old_head, padded_head, scored
from trimtab.hooks.trl.live_loss import Inputs, centering_loss, denominator, loss_mask, steered
from trimtab.hooks.trl.metrics import NewMetrics
from trimtab.hooks.trl.patches import Patches
from trimtab.hooks.trl.twin import OLD, Twin


class SyncRide:
    """What the wrappers of one trainer share from call to call.

    Args:
        trainer: the GRPOTrainer.
        head: entries of the sampler's head that are recorded; 0 for none.
        twin: how the BF16 twin is computed, or None.
    """

    attachment: Attachment

    def __init__(self, trainer: Any, *, head: int, twin: Twin | None) -> None:
        self.trainer = trainer
        self._head, self._twin = head, twin
        self._vllm_head = VLLMHead(head) if head and trainer.use_vllm and not trainer.rollout_func else None
        self._metrics, self._grad_norm = NewMetrics(), GradNorm()
        self._calibration = ClipCalibration()
        self._calibrated_step = 0
        self._generations = 0
        self._batch: Any = None
        self._generated_at = 0
        self._call: _Call | None = None
        self._reset()

    def wrap(self, patches: Patches) -> None:
        """Put the wrappers on."""
        patches.wrap(self.trainer, "compute_loss", self._compute_loss)
        patches.wrap(self.trainer, "_get_per_token_logps_and_entropies", self._score)
        patches.wrap(self.trainer, "_get_grad_norm", self._get_grad_norm)
        if self._head or self._twin:
            patches.wrap(self.trainer, "_generate_and_score_completions", self._generate_and_score)
        if self._vllm_head:
            self.trainer.vllm_generation.logprobs, before = self._head, self.trainer.vllm_generation.logprobs
            patches.wrap(self.trainer.vllm_generation, "generate", self._generate)
            patches.on_undo(lambda: setattr(self.trainer.vllm_generation, "logprobs", before))

    def end_step(self, step: int) -> Controls:
        """Report the optimizer step that has just ended."""
        scalars = self.attachment.tried("metrics", self._scalars) or {}
        ages = self._ages
        facts = {
            "policy_version": step,
            "staleness": sum(ages) / len(ages) if ages else None,
            "pass_index": self._pass,
            "clip_bounds": self._clipped_by,
        }
        controls = self.attachment.end_step(step=step, scalars=scalars, **facts)
        with self.attachment.safely("calibration"):
            self._calibrate(step)
        self._reset()
        return controls

    def _scalars(self) -> dict[str, float | None]:
        found: dict[str, float | None] = {**self._metrics.scalars(self.trainer._metrics["train"])}
        if self._losses:
            found["loss"] = sum(self._losses)  # infinities of both signs make it NaN, which it is
        if self._distances:
            found["head_tv"] = sum(self._distances) / len(self._distances)
        return found | {"grad_norm": self._grad_norm.taken()}

    def _reset(self) -> None:
        self._losses: list[float] = []
        self._distances: list[float] = []
        self._ages: list[int] = []
        self._clipped_by: ClipBounds | None = None
        self._pass = 0

    def _calibrate(self, step: int) -> None:
        summary = self.attachment.emitter.last_summary
        if self._twin is None or summary is None or "shadow" not in summary.sketches:
            return
        if summary.step != self._calibrated_step:
            sample = CalibrationSample.of_sketches(summary.sketches["update"], summary.sketches["shadow"])
            self._calibration = self._calibration.observed(sample, steps=max(1, step - self._calibrated_step))
            self._calibrated_step = summary.step

    def _compute_loss(self, compute_loss: Any, model: Any, inputs: Inputs, *args: Any, **kwargs: Any) -> Any:
        if not (self.attachment.attached and self.trainer.model.training and torch.is_grad_enabled()):
            return compute_loss(model, inputs, *args, **kwargs)
        call = self.attachment.tried("controls", lambda: self._begun(inputs))
        if call is None:
            return compute_loss(model, inputs, *args, **kwargs)
        self._call = call
        try:
            with self._bounded(call):
                loss = compute_loss(model, call.inputs, *args, **kwargs)
        finally:
            self._call = None
        with self.attachment.safely("observe"):
            self._observe(call, inputs, loss)
        return loss if call.term is None else loss + call.term

    def _begun(self, inputs: Inputs) -> _Call:
        controls, own = self.attachment.controls, self.attachment.panel.own()
        bounds = ClipBounds.nominal(controls)
        if controls.clip_mode == "calibrated":
            bounds = self._clipped_by = self._calibration.bounds(controls)
        if controls.centering and LOGPROBS not in inputs:
            self.attachment.emitter.refuse("centering", "no sampler head came with this batch")
            controls = self.attachment.controls
        return _Call(dict(inputs), controls, own, bounds)

    @contextmanager
    def _bounded(self, call: _Call) -> Iterator[None]:
        """Have TRL clip by the call's bounds while it is made, where they are not its own."""
        trainer, own = self.trainer, self.attachment.panel
        before = {"clip_low": trainer.epsilon_low, "clip_high": trainer.epsilon_high}
        calibrated = call.bounds != ClipBounds.nominal(call.controls)
        delta = trainer.args.delta
        if calibrated:
            trainer.epsilon_low, trainer.epsilon_high = -math.expm1(call.bounds.low), math.expm1(call.bounds.high)
        if call.controls.dual_clip != call.own.dual_clip:
            trainer.args.delta = self._delta(call)
        try:
            yield
        finally:
            if trainer.args.delta is not delta:
                trainer.args.delta = delta
            if calibrated:
                with self.attachment.turning:  # somebody may have detached it meanwhile, and left these to this call
                    there = before if self.attachment.attached else {name: own.held(name) for name in before}
                    trainer.epsilon_low, trainer.epsilon_high = there["clip_low"], there["clip_high"]

    def _delta(self, call: _Call) -> float | None:
        """TRL's bound on the ratio of both signs, which for A > 0 is the clip's business."""
        bound, least = call.controls.dual_clip, 1.0 + self.trainer.epsilon_high
        if bound < least:
            reason = f"{bound:g} would clip rewarded tokens too; give {least:g} (1 + clip_high) or more"
            self.attachment.emitter.refuse("dual_clip", reason)
            delta: float | None = self.trainer.args.delta
            return delta
        return None if math.isinf(bound) else bound

    def _observe(self, call: _Call, inputs: Inputs, loss: Tensor) -> None:
        """Take what the loss call used, as it was before anything was steered."""
        if call.train is None:
            raise RuntimeError("TRL's loss made no call of _get_per_token_logps_and_entropies with gradient")
        train = call.train.detach()
        shadow = {}
        if self._twin and OLD in inputs:
            shadow = {
                "shadow_train_logprobs": self._twin.logprobs(*call.scoring, **call.keywords),
                "shadow_old_logprobs": inputs[OLD],
            }
        self.attachment.emitter.observe(
            train_logprobs=train,
            old_logprobs=denominator(inputs, train),
            rollout_logprobs=inputs.get("sampling_per_token_logps"),
            advantages=inputs["advantages"],
            loss_mask=loss_mask(inputs),
            entropy=None if call.entropy is None else call.entropy.detach(),
            **shadow,
        )
        self._time()
        # TRL has just waited for the device, to log its metrics: what was computed before them is there.
        self._losses.append(float(loss.detach()))
        self._grad_norm.settle()
        if call.distance is not None:
            self._distances.append(float(call.distance))

    def _time(self) -> None:
        step, trainer = self.trainer.state.global_step, self.trainer
        if trainer._buffered_inputs is not self._batch:
            self._batch, self._generated_at = trainer._buffered_inputs, step
        self._ages.append(step - self._generated_at)
        every = trainer.args.steps_per_generation * trainer.num_iterations
        self._pass = (trainer._step % every) // trainer.args.steps_per_generation

    def _score(self, score: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        call = self._call
        if call is None or not torch.is_grad_enabled():
            return score(model, *args, **kwargs)
        scores = None
        if call.controls.centering and LOGPROBS in call.inputs:
            scores = self.attachment.tried("score centering", lambda: self._scored_with_head(call, model))
            if scores is None:
                self.attachment.emitter.refuse("centering", "the head could not be scored; the log says why")
        if scores is None:
            scores = score(model, *args, **kwargs)
        with self.attachment.safely("the loss's inputs"):
            call.train, call.entropy = scores[0], scores[1]
            call.scoring, call.keywords = (score, model, *args), kwargs
            steered(call.inputs, scores[0].detach(), call.controls, call.own)
        return scores

    def _scored_with_head(self, call: _Call, model: Any) -> tuple[Tensor, Tensor, None]:
        length = call.inputs["completion_ids"].size(1)
        train, entropy, head = scored(self.trainer, model, call.inputs, length=length)
        call.term, call.distance = centering_loss(self.trainer, call.inputs, head, call.controls, call.bounds)
        return train, entropy, None

    def _get_grad_norm(self, get_grad_norm: Any, *args: Any, **kwargs: Any) -> Any:
        norm = get_grad_norm(*args, **kwargs)
        with self.attachment.safely("grad_norm"):
            self._grad_norm.heard(norm)
        return norm

    def _generate(self, generate: Any, *args: Any, **kwargs: Any) -> Any:
        head, found = self._vllm_head, generate(*args, **kwargs)
        assert head is not None
        apart = self.attachment.tried("the sampler's head", lambda: head.taken_apart(*found))
        return found if apart is None else apart

    def _generate_and_score(self, generate_and_score: Any, examples: Any) -> Any:
        batch = generate_and_score(examples)
        if self.attachment.attached and self.trainer.model.training:
            with self.attachment.safely("the batch"):
                batch |= self._recorded(examples, batch)
        return batch

    def _recorded(self, examples: Any, batch: Inputs) -> Inputs:
        """What has to travel with the batch: the sampler's head with the trainer's old one, and the old twin."""
        extra: Inputs = {}
        length = batch["completion_ids"].size(1)
        if self._head:
            head = (
                self._vllm_head.taken(length)
                if self._vllm_head
                else padded_head(
                    [example[IDS] for example in examples],
                    [example[LOGPROBS] for example in examples],
                    length=length,
                    size=self._head,
                )
            )
            if head is not None:
                device = batch["completion_ids"].device
                extra[IDS], extra[LOGPROBS] = (part.to(device) for part in head)
                extra["old_head_logprobs"] = old_head(self.trainer, batch | extra, length=length)
        if self._twin and self._generations % self._twin.every == 0:
            ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
            mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
            score = self.trainer._get_per_token_logps_and_entropies
            size = self.trainer.args.per_device_train_batch_size  # as TRL scores a batch itself
            extra[OLD] = self._twin.logprobs(score, self.trainer.model, ids, mask, length, batch_size=size)
        self._generations += 1
        return extra


class _Call:
    """One call of the loss while it is made."""

    def __init__(self, inputs: Inputs, controls: Controls, own: Controls, bounds: ClipBounds) -> None:
        self.inputs, self.controls, self.own, self.bounds = inputs, controls, own, bounds
        self.train: Tensor | None = None
        self.entropy: Tensor | None = None
        self.term: Tensor | None = None
        """What score centering adds to the loss."""
        self.distance: Tensor | None = None
        self.scoring: tuple[Any, ...] = ()
        self.keywords: dict[str, Any] = {}
