"""One run from its configuration to its result: build, attach, train, go back where that is asked for, evaluate.

In the run's folder: `config.json`, `contract.json` (what trainer and sampler compute each weight in, and where they
differ), `steps.jsonl` (one `StepRecord` a line, written as it happens), `checkpoints/`, `result.json`.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import torch

import trimtab
from trimtab.hooks.collective_torch import TorchCollective
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.pause import Patience
from trimtab.hooks.wire import encode
from trimtab.trainer.build import build
from trimtab.trainer.calibrate import clip_calibration
from trimtab.trainer.checkpoint import CheckpointError, Checkpoints, check_same_run, check_steps, restore, resume_run
from trimtab.trainer.config import RunConfig
from trimtab.trainer.engines import TWIN_FORMAT, capabilities, contract_of
from trimtab.trainer.grpo import GRPOTrainer
from trimtab.trainer.rollouts.sampler import Update
from trimtab.trainer.sharding import check_world
from trimtab.trainer.step_record import StepRecord
from trimtab.trainer.warm_start import Progress
from trimtab.trainer.world import World

CHECKPOINTS = "checkpoints"
STEPS = "steps.jsonl"
RESULT = "result.json"
CONTRACT = "contract.json"


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
    world: World | None = None,
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
        resume: go on from the folder's newest checkpoint, as a new attempt.
        world: the processes that train together; each calls this alike, and the first writes the folder.
        on_warm_start: called during the warm start, if it is not cached.
        on_step: called after every step.

    Raises:
        ConfigError: the configuration does not fit the model, or its calibration is another's.
        CheckpointError: `resume`, and there is no checkpoint that this configuration can go on from, or more steps are
            done already than it asks for.
    """
    torch.set_num_threads(1)  # runs are compared and repeated: one thread makes them bit-reproducible
    world = world or World()
    world.seed_rounding(config.seed)
    checkpoints = Checkpoints(out / CHECKPOINTS, config.checkpoint.keep)
    state = checkpoints.newest() if resume else None
    if state is not None:
        check_steps(config, state)
    out.mkdir(parents=True, exist_ok=True)
    attempt = int(time.time()) if attempt is None else attempt
    if state is not None:
        attempt = max(attempt, state["attempt"] + 1)
    clip = clip_calibration(config)
    check_world(config, world)
    model, task = world.first_then_others(lambda: build(config, on_warm_start))
    with (
        trimtab.attach(
            url,
            job=job,
            attempt=attempt,
            controls=config.controls_at(0),
            capabilities=replace(capabilities(config, model), checkpoints=() if state is None else checkpoints.names()),
            patience=Patience(seconds=config.pause.seconds, tries=config.pause.tries),
            collective=TorchCollective() if world.size > 1 else None,
        ) as emitter,
        closing(GRPOTrainer(config, emitter, model, task, world)) as trainer,
    ):
        trainer.twin.calibration = clip
        # From here on nothing is refused any more: a mistake in the configuration costs no file of an earlier run.
        if state is not None:
            resume_run(trainer, state)
        contract = contract_of(trainer.learner.model, trainer.sampler.contract())
        with _folder(trainer, checkpoints, out, contract, state) if world.first else nullcontext() as log:
            _train(trainer, checkpoints, log, on_step)
        result = _result(trainer, emitter)
    if world.first:
        (out / RESULT).write_text(json.dumps(dataclasses.asdict(result)))
    return result


def _folder(
    trainer: GRPOTrainer, checkpoints: Checkpoints, out: Path, contract: dict[str, Any], state: dict[str, Any] | None
) -> TextIO:
    """Make the folder this run's; its step log."""
    if state is None:  # what an earlier run left here is not this one's
        checkpoints.clear()
        (out / RESULT).unlink(missing_ok=True)
    (out / "config.json").write_text(trainer.config.model_dump_json(indent=2))
    (out / CONTRACT).write_text(json.dumps(contract, indent=2))
    return _step_log(out / STEPS, state)


def _step_log(path: Path, state: dict[str, Any] | None) -> TextIO:
    """The step log, open behind the step that the checkpoint was taken after: what came then is about to be done
    again."""
    kept: list[str] = []
    if state is not None and path.exists():
        for line in path.read_text().splitlines(keepends=True):
            try:
                row = json.loads(line)
            except ValueError:  # the run was killed while it wrote this line
                break
            if (row["attempt"], row["step"]) >= (state["attempt"], state["step"]):
                break
            kept.append(line.rstrip("\n") + "\n")
    log = path.open("w")
    log.writelines(kept)
    return log


def _train(
    trainer: GRPOTrainer, checkpoints: Checkpoints, log: TextIO | None, on_step: Callable[[StepRecord], None] | None
) -> None:
    every, steps_unsaved = trainer.config.checkpoint.every, False
    for record in trainer.run():
        if log is not None:
            log.write(encode(record).decode() + "\n")
            log.flush()
        if every and (record.step + 1) % every == 0:
            checkpoints.save(trainer)
        _go_back(trainer, checkpoints)
        if on_step is not None:
            on_step(record)
        steps_unsaved = bool(every) and trainer.step_index % every != 0
        if trainer.emitter.controls.paused:
            if steps_unsaved:
                checkpoints.save(trainer)  # who pauses a run may want to end it
            trainer.emitter.wait_while_paused()
            _go_back(trainer, checkpoints)
    if steps_unsaved:
        checkpoints.save(trainer)


def _go_back(trainer: GRPOTrainer, checkpoints: Checkpoints) -> None:
    """Carry out a restore that is asked for and was not yet; it is a level, so being told twice changes nothing."""
    emitter, wanted = trainer.emitter, trainer.emitter.controls.restore
    asked, trainer.restored = wanted not in ("", trainer.restored), wanted
    if asked:
        state, problem = _readable(trainer, checkpoints, wanted)
        if problem is not None:
            emitter.refuse("restore", problem)
        else:
            restore(trainer, state)
            emitter.begin_attempt(emitter.attempt + 1, trainer.config.controls_at(trainer.step_index))
            checkpoints.save(trainer)  # else a run that is killed soon would resume from what it has just left
    emitter.capabilities = replace(emitter.capabilities, checkpoints=checkpoints.names())


def _readable(trainer: GRPOTrainer, checkpoints: Checkpoints, name: str) -> tuple[dict[str, Any], str | None]:
    """The checkpoint, and why it cannot be gone back to, on any process: then it is so on all of them."""
    state: dict[str, Any] = {}
    problem = None
    try:
        state = checkpoints.read(name)
        check_same_run(trainer, state)
    except CheckpointError as error:
        problem = str(error)
    return state, next((told for told in trainer.world.gathered(problem) if told is not None), None)


def _result(trainer: GRPOTrainer, emitter: Emitter) -> RunResult:
    sampler_format = emitter.controls.sampler_format
    return RunResult(
        steps=trainer.step_index,
        reward_eval_bf16=evaluate(trainer, TWIN_FORMAT, "none"),
        reward_eval_sampler=evaluate(trainer, sampler_format, emitter.controls.kv_format),
        sampler_format=sampler_format,
    )


def evaluate(trainer: GRPOTrainer, number_format: str, kv_format: str) -> float | None:
    """Mean reward of the newest weights on the evaluation prompts, sampled in `number_format` with a cache in
    `kv_format`."""
    settings = trainer.config.evaluation
    if not settings.prompts:
        return None
    generator = torch.Generator().manual_seed(settings.seed)
    prompts = trainer.task.prompts(settings.prompts, generator)
    trainer.supply.stop()
    trainer.sampler.sync(
        Update(
            weights=trainer.learner.weights(),
            version=trainer.step_index,
            number_format=number_format,
            kv_format=kv_format,
        )
    )
    rollout = trainer.sampler.generate(
        prompts,
        trainer.task.response_length,
        head=0,
        temperature=trainer.config.rollout.temperature,
        generator=generator,
    )
    return float(trainer.task.grade(prompts, rollout.responses).rewards.mean())
