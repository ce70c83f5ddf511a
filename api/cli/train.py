"""`trimtab train`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.progress import Lines
from trimtab.api.cli.screen import Console
from trimtab.hooks.records import RecordError
from trimtab.hooks.transport.base import UrlError
from trimtab.trainer.checkpoint import CheckpointError, Checkpoints
from trimtab.trainer.config import ConfigError, load_config
from trimtab.trainer.rollouts.sampler import SamplerError
from trimtab.trainer.run import CHECKPOINTS, RunResult, execute
from trimtab.trainer.step_record import StepRecord
from trimtab.trainer.world import World, launched_rank, world_of_environment


def train(
    config: Annotated[Path | None, typer.Argument(help="TOML file; without one, the defaults.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value, as in TOML; may be repeated.")
    ] = None,
    url: Annotated[
        str, typer.Option(help="http://HOST:PORT of an agent, local:PATH.db, file:DIR or memory:")
    ] = "memory:",
    job: Annotated[str, typer.Option(help="Name of the run at the agent.")] = "train",
    out: Annotated[Path | None, typer.Option(help="Folder of the run; runs/JOB by default.")] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="File of `trimtab calibrate`, for shadow.calibration.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the folder's checkpoint.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a model by GRPO or one of its relatives."""
    out = out or Path("runs") / job
    settings = [*(overrides or []), *([] if calibration is None else [f"shadow.calibration={calibration}"])]
    try:
        with world_of_environment() as world:
            quiet = as_json or not world.first
            result = _train(config, settings, url=url, job=job, out=out, resume=resume, world=world, quiet=quiet)
    except KeyboardInterrupt:
        if launched_rank() == 0:
            Console(stderr=True, soft_wrap=True).print(f"stopped; {_going_on(out)}", highlight=False)
        raise typer.Exit(130) from None
    except (ConfigError, CheckpointError, RecordError, UrlError) as error:
        raise UsageError(str(error)) from error
    except SamplerError as error:  # no mistake of the user's: the run was going, and can go on
        if launched_rank() == 0:
            told = f"{error}\n{_going_on(out)}"
            Console(stderr=True, soft_wrap=True).print(told, style="red", highlight=False)
        raise typer.Exit(1) from error
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"--out: {out} cannot be the run's folder ({error.strerror})") from error
    if not world.first:
        return
    if as_json:
        print(json.dumps(dataclasses.asdict(result)))
    else:
        console = Console(soft_wrap=True)
        console.print(f"{result.steps} steps done, in {out}")
        if result.reward_eval_bf16 is not None:
            console.print(f"reward of the trained policy, sampled in bf16: {result.reward_eval_bf16:.3f}")
        if result.reward_eval_sampler != result.reward_eval_bf16:
            console.print(f"... sampled as in the run, in {result.sampler_format}: {result.reward_eval_sampler:.3f}")


def _going_on(out: Path) -> str:
    """What becomes of a run that did not get to its end."""
    written = Checkpoints(out / CHECKPOINTS, keep=1).names()
    if not written:
        return f"there is no checkpoint in {out}, so the same command begins anew"
    return f"the same command with --resume goes on from the checkpoint {written[-1]} in {out}"


def _train(
    config: Path | None,
    overrides: list[str],
    *,
    url: str,
    job: str,
    out: Path,
    resume: bool,
    world: World,
    quiet: bool,
) -> RunResult:
    settings = load_config(config, overrides)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    in_log = not quiet and not console.is_terminal
    lines, warm_lines = Lines(console), Lines(console)
    with Progress(*columns, console=console, disable=quiet or in_log, transient=True) as progress:
        warm = progress.add_task("warm start", total=None, visible=False)
        steps = progress.add_task("training", total=settings.steps)

        def on_step(record: StepRecord) -> None:
            what = f"reward {record.reward_mean:.2f}, entropy {record.entropy:.3f}, mismatch {record.mismatch_std:.3f}"
            progress.update(steps, completed=record.step + 1, description=what)
            if in_log:
                done = record.step + 1
                lines.tell(f"step {done} of {settings.steps}: {what}", last=done == settings.steps)

        def on_warm_start(done: int, total: int) -> None:
            progress.update(warm, completed=done, total=total, visible=done < total)
            if in_log:
                warm_lines.tell(f"warm start: step {done} of {total}", last=done == total)

        return execute(
            settings,
            url=url,
            job=job,
            out=out,
            resume=resume,
            world=world,
            on_warm_start=on_warm_start,
            on_step=on_step,
        )
