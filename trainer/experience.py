"""What one step learns from: sampled responses with their rewards, by dynamic sampling where it is asked for.

Dynamic sampling (DAPO, arXiv 2503.14476): a group in which every response earns the same has no advantage and teaches
nothing. Prompts are drawn anew until the step has its number of groups that do, or the configured number of times; then
the step is filled up with groups that do not, so that its size never changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.hooks.controls import Controls
from trimtab.trainer.advantages import group_advantages, overlong_penalties, uninformative_groups
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import Arrivals, Sampler
from trimtab.trainer.sections import RolloutConfig
from trimtab.trainer.tasks.task import Graded, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """Responses to learn from; groups are consecutive rows."""

    rollout: Rollout
    graded: Graded
    sampled: Graded
    """The same with the responses that dynamic sampling did without: what the policy earns is told from all of them."""

    def to(self, device: torch.device | str) -> Experience:
        """The same on `device`."""
        moved = self.graded.to(device)
        sampled = moved if self.sampled is self.graded else self.sampled.to(device)
        return Experience(rollout=self.rollout.to(device), graded=moved, sampled=sampled)

    def advantages(self, controls: Controls, config: RolloutConfig, longest: int) -> Tensor:
        """[B, 1]"""
        rewards = self.graded.rewards
        if controls.overlong_penalty > 0:
            buffer = config.overlong_buffer or max(1, longest // 8)
            rewards = rewards + overlong_penalties(
                self.graded.lengths, response_length=longest, buffer=buffer, penalty=controls.overlong_penalty
            )
        return group_advantages(rewards, config.group_size, controls.advantage)[:, None]

    def scalars(self, group_size: int) -> dict[str, float]:
        """What the policy earns and how sound it looks, by the names of `StepSummary.scalars`."""
        sampled = self.sampled
        return {
            "reward_mean": float(sampled.rewards.mean()),
            "reward_std": float(sampled.rewards.std()),
            "garbage_fraction": float(sampled.garbage.mean()),
            "repetition_fraction": float(sampled.repetition.mean()),
            "invalid_text_fraction": float(sampled.invalid_text.mean()),
            "entropy_burst_fraction": 0.0 if sampled.entropy_bursts is None else float(sampled.entropy_bursts.mean()),
            "length_mean": float(sampled.lengths.mean()),
            "length_p95": float(sampled.lengths.quantile(0.95)),
            "truncated_fraction": float(sampled.truncated.mean()),
            "zero_variance_fraction": float(uninformative_groups(sampled.rewards, group_size).float().mean()),
        }

    def staleness(self, step: int) -> float:
        """Mean age of the tokens that `step` trains on, in versions of the weights."""
        live = self.graded.mask > 0
        return step - float(self.rollout.versions[live].double().mean())


class Collector:
    """Draws prompts, samples a group of responses for each, and grades them."""

    def __init__(self, config: RolloutConfig, task: Task, sampler: Sampler) -> None:
        self.config = config
        self.task = task
        self.sampler = sampler

    def collect(
        self,
        controls: Controls,
        data: torch.Generator,
        sampling: torch.Generator,
        arrivals: Arrivals | None = None,
    ) -> Experience:
        """One step's responses; prompts come from `data`, tokens from `sampling`, and weights in flight from
        `arrivals`."""
        rollout, graded = self._sample(data, sampling, arrivals)
        if not controls.dynamic_sampling:
            return Experience(rollout=rollout, graded=graded, sampled=graded)
        rollouts, grades = [rollout], [graded]
        while self._signals(grades) < self.config.prompts and len(rollouts) <= self.config.resamplings:
            rollout, graded = self._sample(data, sampling, arrivals)
            rollouts.append(rollout)
            grades.append(graded)
        everything, sampled = Rollout.concatenated(rollouts, self.task.pad), Graded.concatenated(grades)
        rows = self._chosen(sampled.rewards)
        return Experience(rollout=everything.rows(rows), graded=sampled.rows(rows), sampled=sampled)

    def _sample(
        self, data: torch.Generator, sampling: torch.Generator, arrivals: Arrivals | None
    ) -> tuple[Rollout, Graded]:
        rollout = self.sampler.generate(
            self.task.prompts(self.config.prompts, data),
            self.task.response_length,
            samples=self.config.group_size,
            head=self.config.head,
            temperature=self.config.temperature,
            generator=sampling,
            arrivals=arrivals,
        )
        return rollout, self.task.grade(rollout.prompts, rollout.responses, rollout.entropy)

    def _signals(self, grades: list[Graded]) -> int:
        return sum(int((~uninformative_groups(graded.rewards, self.config.group_size)).sum()) for graded in grades)

    def _chosen(self, rewards: Tensor) -> Tensor:
        """Rows of the step's groups: those with a signal first, in the order they were sampled."""
        size = self.config.group_size
        order = torch.argsort(uninformative_groups(rewards, size).int(), stable=True)[: self.config.prompts]
        return (order.sort().values[:, None] * size + torch.arange(size)).flatten()
