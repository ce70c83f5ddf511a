"""`trimtab bench`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from trimtab.api.cli.errors import UsageError

bench = typer.Typer(no_args_is_help=True, add_completion=False, help="Measure what trimtab costs on this machine.")


@bench.callback()
def group() -> None:
    """Measure what trimtab costs on this machine."""


@bench.command()
def hook(as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False) -> None:
    """Cost of one observed step, beside `torch.quantile` per advantage sign in the same run."""
    from trimtab.api.bench.hook import bench_hook

    figures = bench_hook()
    if as_json:
        print(json.dumps(figures))
        return
    title = f"{figures['tokens']} tokens, one thread, {figures['backend']}: {figures['ratio']:.0f} times faster"
    table = Table("", "median ms", "p10", "p90", box=None, title=title)
    rows = {"observe + end_step": "hook", "later, in the transport's thread": "thread", "torch.quantile": "quantile"}
    for label, name in rows.items():
        table.add_row(label, *(f"{figures[name][key]:.3f}" for key in ("median", "p10", "p90")))
    Console().print(table)


@bench.command()
def ranks(
    count: Annotated[int, typer.Option("--ranks", min=1, help="Processes on this machine.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """What reporting as one adds to the end of an observed step, with processes that talk by gloo."""
    from trimtab.api.bench.ranks import bench_ranks

    figures = bench_ranks(count)
    if as_json:
        print(json.dumps(figures))
        return
    table = Table("end_step", "median ms", "p10", "p90", box=None, title=f"{count} processes, one thread each")
    for name in ("alone", "together"):
        table.add_row(name, *(f"{figures[name][key]:.3f}" for key in ("median", "p10", "p90")))
    Console().print(table)


@bench.command()
def step(
    steps: Annotated[int, typer.Option(min=10, help="Steps of each format.")] = 40,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Cost of a training step with rollouts in each number format, beside BF16 rollouts in the same run."""
    from trimtab.api.bench.step import bench_step

    with Progress(console=Console(stderr=True), disable=as_json, transient=True) as progress:
        task = progress.add_task("a step in each format", total=steps)
        backend, costs = bench_step(steps, lambda: progress.advance(task))
    if as_json:
        print(json.dumps({"backend": backend, "steps": steps, "formats": [dataclasses.asdict(cost) for cost in costs]}))
        return
    table = Table("format", "ms a step", "against BF16", "p10 to p90", box=None, title=f"kernels: {backend}")
    for cost in costs:
        spread = f"{cost.ratio_p10:.2f} to {cost.ratio_p90:.2f}"
        table.add_row(cost.format, f"{cost.milliseconds:.0f}", f"{cost.ratio:.2f}", spread)
    Console().print(table)


@bench.command()
def linear(
    rounds: Annotated[int, typer.Option(min=10, help="Forward passes of each format and width.")] = 30,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Cost of a fake-quantised linear layer in each number format, beside the plain one in the same run."""
    from trimtab.api.bench.linear import TOKENS, WIDTHS, bench_linear

    with Progress(console=Console(stderr=True), disable=as_json, transient=True) as progress:
        task = progress.add_task("every format at each width", total=len(WIDTHS))
        costs = bench_linear(rounds, lambda: progress.advance(task))
    if as_json:
        layers = [dataclasses.asdict(cost) for cost in costs]
        print(json.dumps({"tokens": TOKENS, "threads": 1, "rounds": rounds, "layers": layers}))
        return
    title = f"{TOKENS} tokens, one thread"
    table = Table("width", "format", "kernels", "ms", "against float32", "p10 to p90", box=None, title=title)
    for cost in costs:
        spread = f"{cost.ratio_p10:.2f} to {cost.ratio_p90:.2f}"
        figures = (f"{cost.milliseconds:.3f}", f"{cost.ratio:.2f}", spread)
        table.add_row(str(cost.width), cost.format, cost.kernels, *figures)
    Console().print(table)


@bench.command()
def corrections(
    steps: Annotated[int, typer.Option(min=10, help="Pairs of steps of each.")] = 40,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """What score centering and the BF16 twin add to a training step."""
    from trimtab.api.bench.corrections import bench_corrections

    with Progress(console=Console(stderr=True), disable=as_json, transient=True) as progress:
        task = progress.add_task("steps with and without", total=None)
        overheads = bench_corrections(steps, lambda: progress.advance(task))
    if as_json:
        print(json.dumps([dataclasses.asdict(overhead) for overhead in overheads]))
        return
    table = Table("", "ms a step", "added", "p10 to p90", "added a step on average", box=None)
    for one in overheads:
        spread = f"{one.overhead_p10:+.1%} to {one.overhead_p90:+.1%}"
        table.add_row(one.name, f"{one.milliseconds:.0f}", f"{one.overhead:+.1%}", spread, f"{one.amortised:+.1%}")
    Console().print(table)


@bench.command()
def asynchrony(
    blocks: Annotated[int, typer.Option(min=2, help="Blocks of twelve steps of each mode.")] = 12,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """What sampling ahead of the trainer gains over sampling when a step asks, on two cores."""
    from trimtab.api.bench.asynchrony import bench_asynchrony

    with Progress(console=Console(stderr=True), disable=as_json, transient=True) as progress:
        task = progress.add_task("blocks of each mode", total=blocks)
        modes = bench_asynchrony(blocks, on_block=lambda: progress.advance(task))
    if as_json:
        print(json.dumps([dataclasses.asdict(mode) for mode in modes]))
        return
    table = Table(box=None)
    for heading in ("", "steps/s", "ratio", "p10 to p90", "trainer idle", "sampler idle"):
        table.add_column(heading, no_wrap=True)
    for one in modes:
        spread = f"{one.ratio_p10:.2f} to {one.ratio_p90:.2f}"
        idle = f"{one.trainer_idle:.0%}", f"{one.sampler_idle:.0%}"
        table.add_row(one.mode, f"{one.steps_per_second:.1f}", f"{one.ratio:.2f}", spread, *idle)
    Console().print(table)


@bench.command()
def heads(
    rounds: Annotated[int, typer.Option(min=2, help="Generations with each size of the head.")] = 9,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """What the sampler's top log-probs cost vLLM's throughput, on SmolLM2; needs the environment of `make vllm`."""
    from trimtab.api.bench.heads import bench_heads
    from trimtab.trainer.config import ConfigError

    try:
        with Progress(console=Console(stderr=True), disable=as_json, transient=True) as progress:
            task = progress.add_task("a generation with each size", total=rounds)
            costs = bench_heads(rounds, lambda: progress.advance(task))
    except ConfigError as error:
        raise UsageError(str(error)) from error
    if as_json:
        print(json.dumps([dataclasses.asdict(cost) for cost in costs]))
        return
    table = Table("head", "tokens a second", "lost", "p10 to p90", box=None)
    for one in costs:
        spread = f"{one.loss_p10:+.1%} to {one.loss_p90:+.1%}"
        table.add_row(str(one.head), f"{one.tokens_per_second:.0f}", f"{one.loss:+.1%}", spread)
    Console().print(table)


@bench.command()
def trl(
    steps: Annotated[int, typer.Option(min=10, help="Pairs of steps of each workload.")] = 60,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """A training step beside TRL's GRPOTrainer on the same model, task and batch, in float32."""
    from trimtab.api.bench.trl import bench_trl

    with Progress(console=Console(stderr=True), disable=as_json, transient=True) as progress:
        task = progress.add_task("a step of each", total=None)
        costs = bench_trl(steps, lambda: progress.advance(task))
    if as_json:
        print(json.dumps([dataclasses.asdict(cost) for cost in costs]))
        return
    table = Table("", "trimtab ms", "TRL ms", "ratio", "p10 to p90", box=None)
    for one in costs:
        spread = f"{one.ratio_p10:.2f} to {one.ratio_p90:.2f}"
        table.add_row(one.workload, f"{one.ours_ms:.0f}", f"{one.trl_ms:.0f}", f"{one.ratio:.2f}", spread)
    Console().print(table)


@bench.command()
def ladder(
    config: Annotated[Path | None, typer.Argument(help="TOML file of the run; without one, the defaults.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """How far sampling in each number format is from BF16, with the same weights."""
    from trimtab.trainer.config import ConfigError, load_config
    from trimtab.trainer.ladder import ladder as climb

    try:
        settings = load_config(config)
        with Progress(console=Console(stderr=True), disable=as_json, transient=True) as progress:
            task = progress.add_task("formats", total=None)
            rungs = climb(settings, on_rung=lambda: progress.advance(task))
    except ConfigError as error:
        raise UsageError(str(error)) from error
    if as_json:
        print(json.dumps([dataclasses.asdict(rung) for rung in rungs]))
        return
    table = Table("sampler", "std of log p - log q", "largest", "mismatch KL", "reward", box=None)
    for rung in rungs:
        figures = (f"{rung.std:.4f}", f"{rung.largest:.2f}", f"{rung.mismatch_kl:.1e}", f"{rung.reward:.3f}")
        table.add_row(rung.format, *figures)
    Console().print(table)
