"""The GRPO step: sample with old weights in one format, score, update in another, and say what happened.

One step takes `prompts x group_size` responses that were sampled with weights of a bounded age, recomputes their
log-probs, makes `minibatches x passes` updates, and closes with `emitter.end_step`, which returns the controls of the
next step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

import torch
from torch import Tensor, nn

from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.emitter import Emitter
from trimtab.trainer.batch import Batch
from trimtab.trainer.config import RunConfig
from trimtab.trainer.engines import check_fits, check_task
from trimtab.trainer.experience import Experience
from trimtab.trainer.learner import Learner
from trimtab.trainer.mismatch import mismatch_scalars
from trimtab.trainer.rollouts.build import published_of, sampler_of, supply_of
from trimtab.trainer.scoring import Scorer, Scores
from trimtab.trainer.sharding import check_world
from trimtab.trainer.step_record import StepRecord
from trimtab.trainer.tasks.task import Task
from trimtab.trainer.twin import Twin
from trimtab.trainer.world import World


class GRPOTrainer:
    """Trains any `LanguageModel` whose linear layers can be converted on any `Task`.

    Args:
        config: the run; its task and model sections are the caller's business.
        emitter: attached with `config.controls_at(0)` and `capabilities(config, model)`; its controls are read at every
            step boundary.
        model: the policy to start from, and the reference of the KL penalty; it is copied for the trainer, the sampler
            and the BF16 twin.
        task: where prompts and rewards come from.
        world: the processes that train together; all of them have the same experience, and share what is computed.

    Raises:
        ConfigError: the configuration does not fit the model, the task or the processes.
    """

    def __init__(
        self, config: RunConfig, emitter: Emitter, model: nn.Module, task: Task, world: World | None = None
    ) -> None:
        twin = check_fits(config, model)
        check_task(config, task)
        self.world = world = world or World()
        check_world(config, world)
        self.config = config
        self.emitter = emitter
        self.task = task
        scorer = Scorer(task.response_length, config.rollout.temperature)
        self.twin = Twin(twin, scorer, config.shadow.every, world)
        self.learner = Learner(config, model, scorer, self.twin, emitter, world)
        self.reference = {name: value.detach().clone() for name, value in model.state_dict().items()}
        """Weights that the KL penalty holds the policy to."""
        self.sampler = sampler_of(config, model, task, world)
        self.published = published_of(config)
        self.supply = supply_of(config, task, self.sampler, world)
        self.step_index = 0
        self.restored = ""
        """The last restore that was carried out, as `ATTEMPT:STEP`."""

    def run(self) -> Iterator[StepRecord]:
        """Train until the configured number of steps, yielding after each."""
        while self.step_index < self.config.steps:
            yield self.step()

    def step(self) -> StepRecord:
        """One rollout and its updates."""
        started = time.perf_counter()
        controls, generation = self.emitter.controls, self.emitter.generation
        bounds = self.twin.bounds(controls)
        self.learner.configure(controls)
        experience = self._rollout(controls)
        rollout_seconds = time.perf_counter() - started
        minibatches = list(self._minibatches())
        first, scores = self.learner.scored(experience.rollout, minibatches[0])
        batch = self._batch(experience, scores, controls)
        losses, norms, moved = self.learner.update(batch, minibatches, first, controls, bounds)
        scalars = experience.scalars(self.config.rollout.group_size) | mismatch_scalars(batch, controls)
        scalars |= {
            "loss": fmean(losses),
            "grad_norm": fmean(norms),
            "update_norm": fmean(moved),
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
            train_engine=self.learner.engine,
            sampler_engine=experience.rollout.engine,
            staleness=experience.staleness(self.step_index),
            rollout_seconds=rollout_seconds,
            seconds=scalars["seconds"],
        )
        self._close(experience, controls, bounds, scalars)
        return record

    def _rollout(self, controls: Controls) -> Experience:
        """Publish the weights where that is due, and take the step's experience to where the learner computes."""
        if self.published.due(self.step_index, controls.max_staleness):
            self.published.add(self.step_index, self.learner.copy())
        return self.supply.next(self.step_index, self.published, controls).to(self.learner.device)

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
            if controls.ratio_reference == "sampler":
                denominator = self.twin.logprobs_by_version(self.published, rollout.versions, batch)
            else:
                denominator = self.twin.logprobs_shared(self.learner.weights(), batch)
            batch = replace(batch, shadow_old_logprobs=denominator)
        if controls.kl_coef > 0:
            batch = replace(batch, reference_logprobs=self.twin.logprobs_shared(self.reference, batch))
        return batch

    def _minibatches(self) -> Iterator[Tensor]:
        """Rows of each update: whole groups, shuffled once a pass."""
        rollout, update = self.config.rollout, self.config.update
        # A function of seed and step, so that there is no state to keep: sampling may be steps ahead.
        generator = torch.Generator().manual_seed(
            ((self.config.seed + 2_000_003) * 1_000_003 + self.step_index) % 2**63
        )
        for _ in range(update.passes):
            order = torch.randperm(rollout.prompts, generator=generator)
            for groups in order.tensor_split(update.minibatches):
                yield (groups[:, None] * rollout.group_size + torch.arange(rollout.group_size)).flatten()

    def _close(self, experience: Experience, controls: Controls, bounds: ClipBounds, scalars: dict[str, float]) -> None:
        """Report the step, take the next step's controls, and learn from the twin what BF16 would have clipped."""
        self.emitter.end_step(
            step=self.step_index,
            scalars=scalars,
            policy_version=self.step_index,
            staleness=experience.staleness(self.step_index),
            clip_bounds=None if bounds == ClipBounds.nominal(controls) else bounds,
            base=self.config.controls_at(self.step_index + 1),
        )
        self.twin.end_step()
        self.step_index += 1

    def close(self) -> None:
        """Stop sampling ahead, and end the sampler."""
        self.supply.stop()
        self.sampler.close()
