"""The GRPO step: sample with old weights in one format, score, update in another, and say what happened.

One step samples `prompts x group_size` responses with the weights of `lag` steps ago, recomputes the trainer's
log-probs, makes `minibatches x passes` clipped updates, and closes with `emitter.end_step`, which returns the controls
of the next step.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trimtab.hooks.calibration import ClipCalibration
from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.emitter import Emitter
from trimtab.trainer.advantages import group_advantages
from trimtab.trainer.config import RunConfig
from trimtab.trainer.engines import TWIN_FORMAT, check_fits, converted
from trimtab.trainer.objective import LossInputs, policy_loss
from trimtab.trainer.quant import set_format
from trimtab.trainer.sampler import Rollout, TorchSampler, Weights
from trimtab.trainer.tasks.task import Graded, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """What one step came to; one line of `steps.jsonl`."""

    step: int
    attempt: int
    reward_mean: float
    """Under the run's own sampler."""
    garbage_fraction: float
    length_mean: float
    entropy: float
    """Trainer's entropy, mean over live tokens, nats."""
    mismatch_std: float
    """Standard deviation of log p_old - log q over live tokens, nats."""
    grad_norm: float
    """Mean over the step's updates, before clipping."""
    loss: float
    clip_low: float
    """Lower bound of the ratio that was in effect."""
    clip_high: float
    controls: Controls
    generation: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A scored rollout with the log-probs that do not change during the step; rows are sequences."""

    tokens: Tensor
    """[B, prompt + T - 1] model input."""
    responses: Tensor
    mask: Tensor
    advantages: Tensor
    """[B, 1]"""
    rollout_logprobs: Tensor
    head_ids: Tensor
    head_logprobs: Tensor
    old_logprobs: Tensor
    old_head_logprobs: Tensor
    entropy: Tensor
    shadow_old_logprobs: Tensor | None
    """The ratio's denominator as BF16 would compute it; None in a step without the twin."""

    def rows(self, index: Tensor) -> Batch:
        """The sequences at `index`."""
        shadow = None if self.shadow_old_logprobs is None else self.shadow_old_logprobs[index]
        return Batch(
            tokens=self.tokens[index],
            responses=self.responses[index],
            mask=self.mask[index],
            advantages=self.advantages[index],
            rollout_logprobs=self.rollout_logprobs[index],
            head_ids=self.head_ids[index],
            head_logprobs=self.head_logprobs[index],
            old_logprobs=self.old_logprobs[index],
            old_head_logprobs=self.old_head_logprobs[index],
            entropy=self.entropy[index],
            shadow_old_logprobs=shadow,
        )


class GRPOTrainer:
    """Trains any `LanguageModel` whose linear layers are `nn.Linear` on any `Task`.

    Args:
        config: the run; its task and model sections are the caller's business.
        emitter: attached with `config.controls_at(0)` and `capabilities(config, model)`; its controls are read at every
            step boundary.
        model: the policy to start from; it is copied for the trainer, the sampler and the BF16 twin.
        task: where prompts and rewards come from.

    Raises:
        ConfigError: the configuration does not fit the model.
    """

    def __init__(self, config: RunConfig, emitter: Emitter, model: nn.Module, task: Task) -> None:
        check_fits(config, model)
        self.config = config
        self.emitter = emitter
        self.task = task
        controls = config.controls_at(0)
        self.model = converted(model, config, controls.train_format)
        self.twin = converted(model, config, TWIN_FORMAT)
        self.sampler = TorchSampler(converted(model, config, controls.sampler_format), end=task.end, pad=task.pad)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.update.lr, weight_decay=0.0)
        self.history: deque[Weights] = deque(maxlen=config.rollout.lag + 1)
        self.calibration = ClipCalibration()
        self.step_index = 0
        self.data = torch.Generator().manual_seed(config.seed)
        """Prompts and minibatch order."""
        self.sampling = torch.Generator().manual_seed(config.seed + 1_000_003)

    def run(self) -> Iterator[StepRecord]:
        """Train until the configured number of steps, yielding after each."""
        while self.step_index < self.config.steps:
            yield self.step()

    def step(self) -> StepRecord:
        """One rollout and its updates."""
        started = time.perf_counter()
        controls, generation = self.emitter.controls, self.emitter.generation
        bounds = self._bounds(controls)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.update.lr * controls.lr_scale
        set_format(self.model, controls.train_format)

        rollout = self._rollout(controls)
        graded = self.task.grade(rollout.prompts, rollout.responses)
        batch = self._score(rollout, graded, controls)
        losses, norms = self._update(batch, controls, bounds)

        scalars = {
            "loss": sum(losses) / len(losses),
            "grad_norm": sum(norms) / len(norms),
            "reward_mean": float(graded.rewards.mean()),
            "reward_std": float(graded.rewards.std()),
            "garbage_fraction": float(graded.garbage.mean()),
            "length_mean": float(graded.lengths.mean()),
            "zero_variance_fraction": self._zero_variance_fraction(graded.rewards),
            "seconds": time.perf_counter() - started,
        }
        record = StepRecord(
            step=self.step_index,
            attempt=self.emitter.attempt,
            reward_mean=scalars["reward_mean"],
            garbage_fraction=scalars["garbage_fraction"],
            length_mean=scalars["length_mean"],
            entropy=float(batch.entropy[batch.mask > 0].mean()),
            mismatch_std=float((batch.old_logprobs - batch.rollout_logprobs)[batch.mask > 0].std()),
            grad_norm=scalars["grad_norm"],
            loss=scalars["loss"],
            clip_low=float(torch.tensor(bounds.low).exp()),
            clip_high=float(torch.tensor(bounds.high).exp()),
            controls=controls,
            generation=generation,
            seconds=scalars["seconds"],
        )
        self._close(rollout, controls, bounds, scalars)
        return record

    def _bounds(self, controls: Controls) -> ClipBounds:
        if controls.clip_mode == "calibrated":
            return self.calibration.bounds(controls)
        return ClipBounds.nominal(controls)

    def _rollout(self, controls: Controls) -> Rollout:
        """Sample with the oldest weights of the history: `lag` steps old once the run is that old."""
        rollout = self.config.rollout
        self.history.append({name: value.detach().clone() for name, value in self.model.state_dict().items()})
        version = self.step_index - (len(self.history) - 1)
        self.sampler.sync(self.history[0], version, controls.sampler_format)
        prompts = self.task.prompts(rollout.prompts, self.data).repeated(rollout.group_size)
        return self.sampler.generate(
            prompts,
            self.task.response_length,
            head=rollout.head,
            temperature=rollout.temperature,
            generator=self.sampling,
        )

    @torch.no_grad()
    def _score(self, rollout: Rollout, graded: Graded, controls: Controls) -> Batch:
        tokens = rollout.tokens[:, :-1]
        log_p = self._log_softmax(self.model, tokens)
        return Batch(
            tokens=tokens,
            responses=rollout.responses,
            mask=graded.mask,
            advantages=group_advantages(graded.rewards, self.config.rollout.group_size)[:, None],
            rollout_logprobs=rollout.logprobs,
            head_ids=rollout.head_ids,
            head_logprobs=rollout.head_logprobs,
            old_logprobs=_gather(log_p, rollout.responses),
            old_head_logprobs=log_p.gather(2, rollout.head_ids),
            entropy=-(log_p.exp() * log_p).sum(-1),
            shadow_old_logprobs=self._shadow_denominator(rollout, tokens, controls),
        )

    def _shadow_denominator(self, rollout: Rollout, tokens: Tensor, controls: Controls) -> Tensor | None:
        """What the ratio's denominator would be had it been computed in BF16 with the same weights."""
        every = self.config.shadow.every
        if not every or self.step_index % every:
            return None
        against_sampler = controls.ratio_reference == "sampler"
        self.twin.load_state_dict(self.history[0] if against_sampler else self.history[-1])
        return _gather(self._log_softmax(self.twin, tokens), rollout.responses)

    def _update(self, batch: Batch, controls: Controls, bounds: ClipBounds) -> tuple[list[float], list[float]]:
        losses, norms = [], []
        for rows in self._minibatches():
            part = batch.rows(rows)
            log_p = self._log_softmax(self.model, part.tokens)
            train_logprobs = _gather(log_p, part.responses)
            inputs = LossInputs(
                train_logprobs=train_logprobs,
                old_logprobs=part.old_logprobs,
                rollout_logprobs=part.rollout_logprobs,
                advantages=part.advantages,
                mask=part.mask,
                train_head_logprobs=log_p.gather(2, part.head_ids),
                sampler_head_logprobs=part.head_logprobs,
                old_head_logprobs=part.old_head_logprobs,
            )
            loss = policy_loss(inputs, controls, bounds).loss
            self.emitter.observe(
                train_logprobs=train_logprobs.detach(),
                old_logprobs=part.old_logprobs,
                rollout_logprobs=part.rollout_logprobs,
                advantages=part.advantages,
                loss_mask=part.mask,
                entropy=part.entropy,
                shadow_train_logprobs=self._shadow_numerator(part, train_logprobs, controls),
                shadow_old_logprobs=part.shadow_old_logprobs,
            )
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.update.gradient_clip)
            self.optimizer.step()
            losses.append(float(loss.detach()))
            norms.append(float(norm))
        return losses, norms

    @torch.no_grad()
    def _shadow_numerator(self, part: Batch, train_logprobs: Tensor, controls: Controls) -> Tensor | None:
        if part.shadow_old_logprobs is None:
            return None
        if controls.train_format == TWIN_FORMAT:
            return train_logprobs.detach()
        self.twin.load_state_dict(self.model.state_dict())
        return _gather(self._log_softmax(self.twin, part.tokens), part.responses)

    def _minibatches(self) -> Iterator[Tensor]:
        """Rows of each update: whole groups, shuffled once a pass."""
        rollout, update = self.config.rollout, self.config.update
        for _ in range(update.passes):
            order = torch.randperm(rollout.prompts, generator=self.data)
            for groups in order.chunk(update.minibatches):
                yield (groups[:, None] * rollout.group_size + torch.arange(rollout.group_size)).flatten()

    def _log_softmax(self, model: nn.Module, tokens: Tensor) -> Tensor:
        """[B, T, V] log-probs of the response tokens at the sampling temperature."""
        logits = model(tokens, keep_last=self.task.response_length)
        return torch.log_softmax(logits.float() / self.config.rollout.temperature, -1)

    def _zero_variance_fraction(self, rewards: Tensor) -> float:
        groups = rewards.view(-1, self.config.rollout.group_size)
        return float((groups == groups[:, :1]).all(1).float().mean())

    def _close(self, rollout: Rollout, controls: Controls, bounds: ClipBounds, scalars: dict[str, float]) -> None:
        """Report the step, take the next step's controls, and learn from the twin what BF16 would have clipped."""
        self.emitter.end_step(
            step=self.step_index,
            scalars=scalars,
            policy_version=self.step_index,
            staleness=float(self.step_index - rollout.version),
            clip_bounds=None if bounds == ClipBounds.nominal(controls) else bounds,
            base=self.config.controls_at(self.step_index + 1),
        )
        summary = self.emitter.last_summary
        if summary is not None and summary.step == self.step_index and "shadow" in summary.sketches:
            self.calibration = self.calibration.observed(summary.sketches["update"], summary.sketches["shadow"])
        self.step_index += 1


def _gather(log_p: Tensor, tokens: Tensor) -> Tensor:
    """[B, T] log-prob of each token from [B, T, V]."""
    return log_p.gather(2, tokens.unsqueeze(2)).squeeze(2)
