"""`trimtab calibrate`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from trimtab.api.calibration import MIN_STEPS, levels_of, mean_entropy_of
from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.progress import Lines
from trimtab.api.cli.screen import Console
from trimtab.hooks.calibration_file import VERSION, FormatCalibration, write_calibration
from trimtab.trainer.calibrate import Calibrated, setup_of
from trimtab.trainer.calibrate import calibrate as run_calibration
from trimtab.trainer.config import ConfigError, RunConfig, load_config
from trimtab.trainer.step_record import StepRecord


def calibrate(
    number_format: Annotated[str, typer.Option("--format", help="Number format of the rollouts.")],
    config: Annotated[Path | None, typer.Argument(help="TOML file of the run; without one, the defaults.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value, as in TOML; may be repeated.")
    ] = None,
    steps: Annotated[int, typer.Option(min=MIN_STEPS, help="Steps to learn from.")] = 12,
    out: Annotated[Path | None, typer.Option(help="File to write; calibration-FORMAT.json by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Learn clip bounds and reference levels of one number format, before the run that needs them."""
    out = out or Path(f"calibration-{number_format}.json")
    if not os.access(out.parent, os.W_OK):  # before the work, and not behind it
        raise UsageError(f"--out: {out.parent} is no folder that can be written to")
    try:
        found = _calibrated(load_config(config, overrides or []), number_format, steps, quiet=as_json)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    calibration = _file(found)
    try:
        write_calibration(out, calibration)
    except OSError as error:
        raise UsageError(f"--out: {out} cannot be written ({error.strerror})") from error
    bounds = found.clip.bounds(found.config.controls)
    levels = {name: {"location": level.location, "scale": level.scale} for name, level in calibration.levels.items()}
    if as_json:
        print(json.dumps({"out": str(out), "clip_bounds": {"low": bounds.low, "high": bounds.high}, "levels": levels}))
        return
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{steps} steps of {number_format} rollouts: {out}")
    console.print(f"calibrated clip bounds: log-ratios of {bounds.low:+.3f} to {bounds.high:+.3f} nats")
    for name, level in calibration.levels.items():
        console.print(f"{name}: {level.location:.4f} (sd {level.scale:.4f})")


def _calibrated(settings: RunConfig, number_format: str, steps: int, *, quiet: bool) -> Calibrated:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    in_log = not quiet and not console.is_terminal
    lines, warm_lines = Lines(console), Lines(console)
    with Progress(*columns, console=console, disable=quiet or in_log, transient=True) as progress:
        warm = progress.add_task("warm start", total=None, visible=False)
        task = progress.add_task("calibrating", total=steps)

        def on_warm_start(done: int, total: int) -> None:
            progress.update(warm, completed=done, total=total, visible=done < total)
            if in_log:
                warm_lines.tell(f"warm start: step {done} of {total}", last=done == total)

        def on_step(record: StepRecord) -> None:
            done = record.step + 1
            progress.update(task, completed=done)
            if in_log:
                lines.tell(f"calibrating: step {done} of {steps}", last=done == steps)

        return run_calibration(settings, number_format, steps, on_warm_start=on_warm_start, on_step=on_step)


def _file(found: Calibrated) -> FormatCalibration:
    controls = found.config.controls
    return FormatCalibration(
        version=VERSION,
        sampler_format=controls.sampler_format,
        train_format=controls.train_format,
        kv_format=controls.kv_format,
        ratio_reference=controls.ratio_reference,
        objective=controls.objective,
        setup=setup_of(found.config),
        steps=len(found.summaries),
        entropy=mean_entropy_of(found.summaries),
        levels=levels_of(found.summaries),
        clip=found.clip,
    )
