"""The GRPO step: sample with old weights in one format, score, update in another, and say what happened.

One step samples `prompts x group_size` responses with the weights of `lag` steps ago, recomputes the trainer's
log-probs, makes `minibatches x passes` updates, and closes with `emitter.end_step`, which returns the controls of the
next step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import fmean

import torch
from torch import Tensor, nn

from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.emitter import Emitter
from trimtab.trainer.batch import Batch
from trimtab.trainer.config import RunConfig
from trimtab.trainer.engines import TWIN_FORMAT, check_fits, check_task, converted
from trimtab.trainer.experience import Collector, Experience
from trimtab.trainer.objective import LossInputs, policy_loss
from trimtab.trainer.optimizer import adamw
from trimtab.trainer.quant import engine_of, set_backward, set_format
from trimtab.trainer.rollouts.ahead import Ahead
from trimtab.trainer.rollouts.build import build_sampler
from trimtab.trainer.rollouts.process import SamplerProcess
from trimtab.trainer.rollouts.published import Published
from trimtab.trainer.rollouts.sampler import Sampler, Weights
from trimtab.trainer.rollouts.supply import Supply, Synchronous
from trimtab.trainer.scoring import Scorer, Scores, gathered
from trimtab.trainer.step_record import StepRecord
from trimtab.trainer.tasks.task import Task
from trimtab.trainer.twin import Twin


class GRPOTrainer:
    """Trains any `LanguageModel` whose linear layers can be converted on any `Task`.

    Args:
        config: the run; its task and model sections are the caller's business.
        emitter: attached with `config.controls_at(0)` and `capabilities(config, model)`; its controls are read at every
            step boundary.
        model: the policy to start from, and the reference of the KL penalty; it is copied for the trainer, the sampler
            and the BF16 twin.
        task: where prompts and rewards come from.

    Raises:
        ConfigError: the configuration does not fit the model or the task.
    """

    def __init__(self, config: RunConfig, emitter: Emitter, model: nn.Module, task: Task) -> None:
        check_fits(config, model)
        check_task(config, task)
        self.config = config
        self.emitter = emitter
        self.task = task
        controls = config.controls_at(0)
        self.model = converted(model, config, controls.train_format)
        self.sampler = _sampler(config, model, task)
        self.reference = _copied(model)
        """Weights that the KL penalty holds the policy to."""
        self.optimizer = adamw(self.model.parameters(), config.update.lr)
        self.published = _published(config)
        self.restored = ""
        """The last restore that was carried out, as `ATTEMPT:STEP`."""
        self.step_index = 0
        self.supply = _supply(config, Collector(config.rollout, task, self.sampler), self.sampler)
        self._scorer = Scorer(task.response_length, config.rollout.temperature)
        self.twin = Twin(converted(model, config, TWIN_FORMAT), self._scorer, config.shadow.every)

    def run(self) -> Iterator[StepRecord]:
        """Train until the configured number of steps, yielding after each."""
        while self.step_index < self.config.steps:
            yield self.step()

    def step(self) -> StepRecord:
        """One rollout and its updates."""
        started = time.perf_counter()
        controls, generation = self.emitter.controls, self.emitter.generation
        bounds = self.twin.bounds(controls)
        self._configure(controls)
        experience = self._rollout(controls)
        rollout_seconds = time.perf_counter() - started
        minibatches = list(self._minibatches())
        first, scores = self._scorer.scored(self.model, experience.rollout, minibatches[0])
        batch = self._batch(experience, scores, controls)
        losses, norms = self._update(batch, minibatches, first, controls, bounds)
        scalars = self._scalars(experience) | {
            "loss": fmean(losses),
            "grad_norm": fmean(norms),
            "skipped_update_fraction": fmean(not math.isfinite(norm) for norm in norms),
            "rollout_seconds": rollout_seconds,
            "seconds": time.perf_counter() - started,
        }
        live = batch.mask > 0
        record = StepRecord(
            step=self.step_index,
            attempt=self.emitter.attempt,
            reward_mean=scalars["reward_mean"],
            garbage_fraction=scalars["garbage_fraction"],
            length_mean=scalars["length_mean"],
            entropy=float(batch.entropy[live].mean()),
            mismatch_std=float((batch.old_logprobs - batch.rollout_logprobs)[live].std()),
            grad_norm=scalars["grad_norm"],
            loss=scalars["loss"],
            clip_low=math.exp(bounds.low),
            clip_high=math.exp(bounds.high),
            controls=controls,
            generation=generation,
            train_engine=engine_of(self.model),
            sampler_engine=experience.rollout.engine,
            staleness=self._staleness(experience),
            rollout_seconds=rollout_seconds,
            seconds=scalars["seconds"],
        )
        self._close(experience, controls, bounds, scalars)
        return record

    def _configure(self, controls: Controls) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.update.lr * controls.lr_scale
        set_format(self.model, controls.train_format)
        set_backward(self.model, controls.backward)

    def _rollout(self, controls: Controls) -> Experience:
        """Publish the weights where that is due, and take the step's experience."""
        if self.published.due(self.step_index):
            self.published.add(self.step_index, _copied(self.model))
        return self.supply.next(self.step_index, self.published, controls)

    def _batch(self, experience: Experience, scores: Scores, controls: Controls) -> Batch:
        """What stays the same during the step's updates."""
        rollout = experience.rollout
        batch = Batch(
            tokens=rollout.inputs,
            padding=rollout.prompts.padding,
            responses=rollout.responses,
            mask=experience.graded.mask,
            advantages=experience.advantages(controls, self.config.rollout, self.task.response_length),
            rollout_logprobs=rollout.logprobs,
            head_ids=rollout.head_ids,
            head_logprobs=rollout.head_logprobs,
            old_logprobs=scores.logprobs,
            old_head_logprobs=scores.head_logprobs,
            entropy=scores.entropy,
            reference_logprobs=None,
            shadow_old_logprobs=None,
        )
        if self.twin.due(self.step_index):
            # What the ratio's denominator would be had it been computed in BF16 with the same weights.
            batch = replace(batch, shadow_old_logprobs=self._shadow_denominator(experience, batch, controls))
        if controls.kl_coef > 0:
            batch = replace(batch, reference_logprobs=self.twin.logprobs(self.reference, batch))
        return batch

    def _shadow_denominator(self, experience: Experience, batch: Batch, controls: Controls) -> Tensor:
        """[B, T] each token under the weights of the ratio's denominator, as BF16 would compute it."""
        if controls.ratio_reference != "sampler":
            return self.twin.logprobs(self.model.state_dict(), batch)
        versions = experience.rollout.versions
        logprobs = torch.zeros_like(batch.rollout_logprobs)
        for version in set(versions.flatten().tolist()):
            logprobs = torch.where(versions == version, self.twin.logprobs(self.published[version], batch), logprobs)
        return logprobs

    def _update(
        self, batch: Batch, minibatches: list[Tensor], first: Tensor, controls: Controls, bounds: ClipBounds
    ) -> tuple[list[float], list[float]]:
        """Every minibatch's update, the log-probs of the first being there already; losses and gradient norms."""
        losses, norms = [], []
        for index, rows in enumerate(minibatches):
            part = batch.rows(rows)
            log_p = self._scorer.log_softmax(self.model, part.tokens, part.padding) if index else first
            train_logprobs = gathered(log_p, part.responses)
            inputs = LossInputs(
                train_logprobs=train_logprobs,
                old_logprobs=part.old_logprobs,
                rollout_logprobs=part.rollout_logprobs,
                advantages=part.advantages,
                mask=part.mask,
                reference_logprobs=part.reference_logprobs,
                train_head_logprobs=log_p.gather(2, part.head_ids),
                old_head_logprobs=part.old_head_logprobs,
                sampler_head_logprobs=part.head_logprobs,
            )
            loss = policy_loss(inputs, controls, bounds)
            shadow = self._shadow_logprobs(part, train_logprobs.detach(), controls)
            self._observe(part, train_logprobs.detach(), shadow)
            if shadow is not None and part.shadow_old_logprobs is not None:
                self.twin.observe(loss, shadow - part.shadow_old_logprobs, part.advantages)
            self.optimizer.zero_grad(set_to_none=True)
            loss.loss.backward()  # type: ignore[no-untyped-call]
            norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.config.update.gradient_clip))
            if math.isfinite(norm):  # else one bad gradient would be the end of every weight; it is reported instead
                self.optimizer.step()
            losses.append(float(loss.loss.detach()))
            norms.append(norm)
        return losses, norms

    def _shadow_logprobs(self, part: Batch, train_logprobs: Tensor, controls: Controls) -> Tensor | None:
        """[B, T] of the weights being trained as BF16 would compute them; None in a step without the twin."""
        if part.shadow_old_logprobs is None or controls.train_format == TWIN_FORMAT:
            return None if part.shadow_old_logprobs is None else train_logprobs
        return self.twin.logprobs(self.model.state_dict(), part)

    def _observe(self, part: Batch, train_logprobs: Tensor, shadow: Tensor | None) -> None:
        """Report the tensors that the loss used."""
        self.emitter.observe(
            train_logprobs=train_logprobs,
            old_logprobs=part.old_logprobs,
            rollout_logprobs=part.rollout_logprobs,
            advantages=part.advantages,
            loss_mask=part.mask,
            entropy=part.entropy,
            shadow_train_logprobs=shadow,
            shadow_old_logprobs=part.shadow_old_logprobs,
        )

    def _minibatches(self) -> Iterator[Tensor]:
        """Rows of each update: whole groups, shuffled once a pass."""
        rollout, update = self.config.rollout, self.config.update
        # A function of seed and step, so that there is no state to keep: sampling may be steps ahead.
        generator = torch.Generator().manual_seed((self.config.seed + 2_000_003) * 1_000_003 + self.step_index)
        for _ in range(update.passes):
            order = torch.randperm(rollout.prompts, generator=generator)
            for groups in order.tensor_split(update.minibatches):
                yield (groups[:, None] * rollout.group_size + torch.arange(rollout.group_size)).flatten()

    def _scalars(self, experience: Experience) -> dict[str, float]:
        sampled = experience.sampled
        return {
            "reward_mean": float(sampled.rewards.mean()),
            "reward_std": float(sampled.rewards.std()),
            "garbage_fraction": float(sampled.garbage.mean()),
            "repetition_fraction": float(sampled.repetition.mean()),
            "invalid_text_fraction": float(sampled.invalid_text.mean()),
            "entropy_burst_fraction": 0.0 if sampled.entropy_bursts is None else float(sampled.entropy_bursts.mean()),
            "length_mean": float(sampled.lengths.mean()),
            "zero_variance_fraction": experience.zero_variance_fraction(self.config.rollout.group_size),
        }

    def _close(self, experience: Experience, controls: Controls, bounds: ClipBounds, scalars: dict[str, float]) -> None:
        """Report the step, take the next step's controls, and learn from the twin what BF16 would have clipped."""
        self.emitter.end_step(
            step=self.step_index,
            scalars=scalars,
            policy_version=self.step_index,
            staleness=self._staleness(experience),
            clip_bounds=None if bounds == ClipBounds.nominal(controls) else bounds,
            base=self.config.controls_at(self.step_index + 1),
        )
        self.twin.end_step()
        self.step_index += 1

    def _staleness(self, experience: Experience) -> float:
        """Mean age of the tokens that the step trains on, versions."""
        live = experience.graded.mask > 0
        return self.step_index - float(experience.rollout.versions[live].double().mean())

    def close(self) -> None:
        """Stop sampling ahead, and end the sampler."""
        self.supply.stop()
        self.sampler.close()


def _copied(model: nn.Module) -> Weights:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _published(config: RunConfig) -> Published:
    ahead = config.asynchrony
    return Published(every=ahead.sync_every, age=config.rollout.lag if ahead.mode == "off" else ahead.max_staleness)


def _sampler(config: RunConfig, model: nn.Module, task: Task) -> Sampler:
    factory = partial(build_sampler, config, model, end=task.end, pad=task.pad)
    return SamplerProcess(factory) if config.asynchrony.mode == "process" else factory()


def _supply(config: RunConfig, collector: Collector, sampler: Sampler) -> Supply:
    ahead = config.asynchrony
    if ahead.mode == "off":
        return Synchronous(collector, sampler, lag=config.rollout.lag, seed=config.seed)
    return Ahead(
        collector,
        sampler,
        max_staleness=ahead.max_staleness,
        in_flight=ahead.in_flight != "wait",
        seed=config.seed,
    )
