"""One run from its configuration to its result: warm start, attach, train, evaluate, with its files beside it.

In the run's folder: `config.json`, `steps.jsonl` (one `StepRecord` a line, written as it happens), `checkpoint.pt`,
`result.json`.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import torch

import trimtab
from trimtab.hooks.emitter import Emitter
from trimtab.trainer.checkpoint import read_checkpoint, restore, save_checkpoint
from trimtab.trainer.config import RunConfig
from trimtab.trainer.engines import TWIN_FORMAT, capabilities, check_fits
from trimtab.trainer.grpo import GRPOTrainer, StepRecord
from trimtab.trainer.tasks.running_sum import RunningSum
from trimtab.trainer.warm_start import Progress, build_model, warm_weights

CHECKPOINT = "checkpoint.pt"
STEPS = "steps.jsonl"
RESULT = "result.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended."""

    steps: int
    reward_eval_bf16: float | None
    """Reward of the trained policy sampled in BF16; None when evaluation is off."""
    reward_eval_sampler: float | None
    """Reward of the trained policy sampled in the run's last sampler format."""
    sampler_format: str


def execute(
    config: RunConfig,
    *,
    url: str,
    job: str,
    out: Path,
    attempt: int | None = None,
    resume: bool = False,
    on_warm_start: Progress | None = None,
    on_step: Callable[[StepRecord], None] | None = None,
) -> RunResult:
    """Run to the end.

    Args:
        config: the run.
        url: where its summaries go, as for `trimtab.attach`.
        job: its name there.
        out: its folder; made if it is missing.
        attempt: number of this start of the job, above every earlier one's; by default the time in seconds.
        resume: go on from the folder's checkpoint, as a new attempt.
        on_warm_start: called during the warm start, if it is not cached.
        on_step: called after every step.

    Raises:
        ConfigError: the configuration does not fit the model.
        CheckpointError: `resume`, and there is no checkpoint that this configuration can go on from.
    """
    torch.set_num_threads(1)  # runs are compared and repeated: one thread makes them bit-reproducible
    state = read_checkpoint(out / CHECKPOINT) if resume else None
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(config.model_dump_json(indent=2))
    attempt = int(time.time()) if attempt is None else attempt
    if state is not None:
        attempt = max(attempt, state["attempt"] + 1)
    else:  # what an earlier run left here is not this one's
        for name in (CHECKPOINT, RESULT):
            (out / name).unlink(missing_ok=True)
    model = build_model(config)
    check_fits(config, model)  # here as well as in the trainer, so that nobody waits for a warm start in vain
    model.load_state_dict(warm_weights(config, on_warm_start))
    with trimtab.attach(
        url, job=job, attempt=attempt, controls=config.controls_at(0), capabilities=capabilities(config, model)
    ) as emitter:
        trainer = GRPOTrainer(config, emitter, model, RunningSum(digits=config.task.digits))
        if state is not None:
            restore(trainer, state)
        with _step_log(out / STEPS, trainer.step_index) as log:
            _train(trainer, out, log, on_step)
        result = _result(trainer, emitter)
    (out / RESULT).write_text(json.dumps(dataclasses.asdict(result)))
    return result


def _step_log(path: Path, step: int) -> TextIO:
    """The step log, open behind the last step before `step`: what came after it is about to be done again."""
    kept = path.read_text().splitlines(keepends=True)[:step] if step else []
    log = path.open("w")
    log.writelines(kept)
    return log


def _train(trainer: GRPOTrainer, out: Path, log: TextIO, on_step: Callable[[StepRecord], None] | None) -> None:
    every = trainer.config.checkpoint.every
    for record in trainer.run():
        log.write(json.dumps(dataclasses.asdict(record)) + "\n")
        log.flush()
        if every and (record.step + 1) % every == 0:
            save_checkpoint(trainer, out / CHECKPOINT)
        if on_step is not None:
            on_step(record)
    save_checkpoint(trainer, out / CHECKPOINT)


def _result(trainer: GRPOTrainer, emitter: Emitter) -> RunResult:
    sampler_format = emitter.controls.sampler_format
    return RunResult(
        steps=trainer.step_index,
        reward_eval_bf16=evaluate(trainer, TWIN_FORMAT),
        reward_eval_sampler=evaluate(trainer, sampler_format),
        sampler_format=sampler_format,
    )


def evaluate(trainer: GRPOTrainer, number_format: str) -> float | None:
    """Mean reward of the newest weights on the evaluation prompts, sampled in `number_format`."""
    settings = trainer.config.evaluation
    if not settings.prompts:
        return None
    generator = torch.Generator().manual_seed(settings.seed)
    prompts = trainer.task.prompts(settings.prompts, generator)
    trainer.sampler.sync(trainer.model.state_dict(), trainer.step_index, number_format)
    rollout = trainer.sampler.generate(
        prompts,
        trainer.task.response_length,
        head=0,
        temperature=trainer.config.rollout.temperature,
        generator=generator,
    )
    return float(trainer.task.grade(prompts, rollout.responses).rewards.mean())
