"""A TRL run that fails by itself, alone and with the agent: a GRPOTrainer on running sums, steered over HTTP.

Four passes over each generation, in two minibatches, with a clip of 10, which never clips: the policy climbs for some
batches and then falls to chance. The healthy run differs in its clip alone, 0.2. The one that is attended is the one
that fails, with two lines that attach it and the agent in mode auto; nothing else is set.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.api.bench.trl_task import arguments, questions, reward, tokenizer, warm_model
from trimtab.api.client import Client
from trimtab.api.demo.perform import service
from trimtab.api.errors import UserError
from trimtab.api.workers import Work, perform
from trimtab.trainer.tasks.running_sum import RunningSum

TASK = RunningSum(digits=8)
PROMPTS, GROUP, MINIBATCHES, PASSES = 24, 8, 2, 4
UPDATES = MINIBATCHES * PASSES
"""Optimizer steps a generation."""
LEARNING_RATE, USUAL_CLIP, NO_CLIP = 5e-4, 0.2, 10.0
LAST = 10
"""Generations that the end of a run is the mean of."""
KINDS = {"healthy": USUAL_CLIP, "alone": NO_CLIP, "attended": NO_CLIP}
"""Clip of each run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescue:
    """The three runs of one seed: mean reward of the last generations."""

    seed: int
    healthy: float
    alone: float
    attended: float
    remedies: tuple[str, ...]
    """What the agent did, with the optimizer step."""

    @property
    def kept(self) -> float:
        """Share of the healthy run's reward that the attended one ends with."""
        return self.attended / self.healthy


def trainer(folder: Path, *, clip: float, seed: int, generations: int) -> Any:
    """A GRPOTrainer of TRL as a user has it, with TRL's own defaults where nothing is said."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    settings = arguments(
        folder,
        per_device_train_batch_size=PROMPTS * GROUP // MINIBATCHES,
        num_generations=GROUP,
        steps_per_generation=MINIBATCHES,
        num_iterations=PASSES,
        gradient_accumulation_steps=1,
        max_completion_length=TASK.response_length,
        epsilon=clip,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        max_steps=generations * UPDATES,
        seed=seed,
    )
    return GRPOTrainer(
        warm_model(TASK),
        reward_funcs=reward,
        args=settings,
        train_dataset=questions(TASK, 2000, seed),
        processing_class=tokenizer(),
    )


def run(folder: Path, kind: str, seed: int, generations: int, url: str) -> None:
    """Train one run, attached to the agent at `url`, and leave its rewards by generation in `folder`."""
    import torch
    from transformers import TrainerCallback

    from trimtab.hooks.trl import attach

    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    rewards: list[float] = []

    class Rewards(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            if state.global_step % UPDATES == 1:
                rewards.append(made._metrics["train"]["reward"][-1])

    made = trainer(folder, clip=KINDS[kind], seed=seed, generations=generations)
    made.add_callback(Rewards())
    attach(made, url, job=_job(kind, seed))
    made.train()
    (folder / "rewards.json").write_text(json.dumps(rewards))


def bench_rescue(
    seeds: Sequence[int], generations: int, folder: Path, on_run: Callable[[], None] = lambda: None
) -> list[Rescue]:
    """Every run of every seed, as many at a time as there are cores; `on_run` is called after each.

    Raises:
        UserError: a run failed, or the agent's service did not start.
    """
    warm_model(TASK)  # once, before the processes ask for it
    folder.mkdir(parents=True, exist_ok=True)
    with service(folder / "agent.db") as (url, _), Client(url) as client:
        works = []
        for seed in seeds:
            for kind in KINDS:
                client.register(_job(kind, seed), mode="auto" if kind == "attended" else "observe")
                out = folder / f"{kind}-{seed}"
                works.append(
                    Work(name=out.name, function=run, arguments=(out, kind, seed, generations, url), log=out / "log")
                )
        preload = "trimtab.api.bench.rescue"
        for ended in perform(works, os.cpu_count() or 1, preload=preload, on_end=lambda _: on_run()):
            if ended.error:
                raise UserError(f"{ended.name}: {ended.error}; see {folder / ended.name / 'log'}")
        return [_rescue(folder, seed, client) for seed in seeds]


def _rescue(folder: Path, seed: int, client: Client) -> Rescue:
    ends = {}
    for kind in KINDS:
        rewards = json.loads((folder / f"{kind}-{seed}" / "rewards.json").read_text())
        ends[kind] = sum(rewards[-LAST:]) / len(rewards[-LAST:])
    said = client.events(_job("attended", seed), kinds=("controls_changed",))
    return Rescue(
        seed=seed, **ends, remedies=tuple(f"{each.step} {each.detail.get('remedy', 'lifted')}" for each in said)
    )


def _job(kind: str, seed: int) -> str:
    return f"trl-{kind}-s{seed}"
