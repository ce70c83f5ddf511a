"""`trimtab bench`."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.progress import Progress
from rich.table import Column, Table

from trimtab.api.cli.bench_tail import tail
from trimtab.api.cli.bench_trl import rescue, trl_hook
from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.screen import Console
from trimtab.api.cli.tables import as_wide_as_shown

if TYPE_CHECKING:
    from trimtab.api.bench.jobs import Soak

bench = typer.Typer(no_args_is_help=True, add_completion=False, help="Measure what trimtab costs on this machine.")
bench.command()(rescue)
bench.command()(trl_hook)

bench.command()(tail)
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]
T = TypeVar("T")


@bench.callback()
def group() -> None:
    """Measure what trimtab costs on this machine."""


def _measured(what: str, total: int | None, as_json: bool, measure: Callable[[Callable[[], None]], T]) -> T:
    """What `measure` gives, which is called with what it calls after each part of the work."""
    from trimtab.trainer.config import ConfigError

    try:
        with Progress(console=Console(stderr=True), disable=as_json, transient=True) as progress:
            task = progress.add_task(what, total=total)
            return measure(lambda: progress.advance(task))
    except ConfigError as error:
        raise UsageError(str(error)) from error


def _show(figures: Any, as_json: bool, headings: Iterable[str], rows: Iterable[Iterable[str]], title: str = "") -> None:
    """Print `figures` as JSON, or else the table of what they say."""
    if as_json:
        print(json.dumps(figures, default=dataclasses.asdict))
        return
    table = Table(*(Column(heading, no_wrap=True) for heading in headings), box=None, title=title or None)
    for row in rows:
        table.add_row(*row)
    as_wide_as_shown().print(table)


def _times(spread: dict[str, float]) -> tuple[str, ...]:
    return tuple(f"{spread[key]:.3f}" for key in ("median", "p10", "p90"))


def _ratios(low: float, high: float) -> str:
    return f"{low:.2f} to {high:.2f}"


def _shares(low: float, high: float) -> str:
    return f"{low:+.1%} to {high:+.1%}"


@bench.command()
def hook(as_json: AsJson = False) -> None:
    """Cost of one observed step, beside `torch.quantile` per advantage sign in the same run."""
    from trimtab.api.bench.hook import bench_hook

    figures = bench_hook()
    title = f"{figures['tokens']} tokens, one thread, {figures['backend']}: {figures['ratio']:.0f} times faster"
    names = {"observe + end_step": "hook", "later, in the transport's thread": "thread", "torch.quantile": "quantile"}
    rows = ((label, *_times(figures[name])) for label, name in names.items())
    _show(figures, as_json, ("", "median ms", "p10", "p90"), rows, title)


@bench.command()
def ranks(
    count: Annotated[int, typer.Option("--ranks", min=1, help="Processes on this machine.")] = 2,
    as_json: AsJson = False,
) -> None:
    """What reporting as one adds to the end of an observed step, with processes that talk by gloo."""
    from trimtab.api.bench.ranks import bench_ranks

    figures = bench_ranks(count)
    rows = ((name, *_times(figures[name])) for name in ("alone", "together"))
    _show(figures, as_json, ("end_step", "median ms", "p10", "p90"), rows, f"{count} processes, one thread each")


@bench.command()
def scrape(
    jobs: Annotated[int, typer.Option(min=1, help="Jobs that report.")] = 200,
    as_json: AsJson = False,
) -> None:
    """What a scrape by Prometheus costs the agent, beside `prometheus_client` writing the same samples."""
    from trimtab.api.bench.scrape import bench_scrape

    figures = bench_scrape(jobs)
    title = f"{jobs} jobs, {figures['samples']} samples; the first scrape took {figures['first']:.0f} ms"
    names = {"scrape, queries included": "scrape", "prometheus_client, writing alone": "peer"}
    rows = ((label, *_times(figures[name])) for label, name in names.items())
    _show(figures, as_json, ("", "median ms", "p10", "p90"), rows, title)


@bench.command()
def ingest(
    seconds: Annotated[float, typer.Option(min=1, help="Of each load.")] = 60,
    jobs: Annotated[int, typer.Option(min=1, help="Jobs that report at once, as fast as they are answered.")] = 8,
    postgres: Annotated[
        str,
        typer.Option("--database-url", help="Empty PostgreSQL database, for two replicas; without one, SQLite only."),
    ] = "",
    peers: Annotated[
        Path | None,
        typer.Option(help="Folder for environments of MLflow and trackio, which are then measured too; about 1 GB."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How many step summaries a second the agent takes over HTTP, beside loggers of scalars in the same run."""
    from trimtab.api.bench.bodies import drawn_steps
    from trimtab.api.bench.ingest import bench_ingest, ingest_cases

    cases = list(ingest_cases(seconds, jobs, drawn_steps(), postgres=postgres, peers=peers))
    rates = _measured("loads", len(cases), as_json, lambda done: bench_ingest(cases, done))
    rows = (
        (
            *(one.server, one.requests, f"{one.summaries_per_second:.0f}"),
            *(f"{one.p50_ms:.1f}", f"{one.p99_ms:.1f}", f"{one.ratio:.2f}"),
        )
        for one in rates
    )
    headings = ("server", "in a request", "steps/s", "p50 ms", "p99 ms", "trimtab by this")
    _show(rates, as_json, headings, rows, f"{jobs} jobs, {seconds:g} s each")


@bench.command("jobs")
def many_jobs(
    count: Annotated[int, typer.Option("--jobs", min=1, help="Jobs that report.")] = 200,
    minutes: Annotated[float, typer.Option(min=0.1, help="For how long.")] = 10,
    pace: Annotated[float, typer.Option(min=0.01, help="Steps a second of each.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Many jobs at the pace of training: memory, the overview's time, and whether the ledger holds exactly all."""
    from trimtab.api.bench.bodies import drawn_steps
    from trimtab.api.bench.jobs import bench_jobs

    def measure(done: Callable[[], None]) -> Soak:
        return bench_jobs(count, minutes, pace, drawn_steps(), on_look=done)

    soak = _measured("looks at the overview, one a second", round(60 * minutes), as_json, measure)
    rows = (
        ("summaries, all in the ledger, once", f"{soak.summaries}"),
        ("request, median and p99", f"{soak.p50_ms:.1f} and {soak.p99_ms:.1f} ms"),
        ("overview, median and p99", f"{soak.overview_p50_ms:.1f} and {soak.overview_p99_ms:.1f} ms"),
        ("memory over time", f"{', '.join(f'{each:.0f}' for each in soak.memory_mb)} MB"),
        ("its growth", f"{soak.growth_mb_per_hour:+.1f} MB an hour"),
    )
    _show(soak, as_json, ("", ""), rows, f"{count} jobs, {pace:g} steps/s each, {soak.seconds:.0f} s")


@bench.command()
def start(
    times: Annotated[int, typer.Option(min=2, help="Servers of each kind.")] = 9, as_json: AsJson = False
) -> None:
    """How long `trimtab serve` takes to its ready line, and what memory it holds then."""
    from trimtab.api.bench.start import bench_start

    starts = _measured("servers", times, as_json, lambda done: bench_start(times, done))
    rows = (
        (
            *(one.database, f"{one.seconds.median:.2f}", _ratios(one.seconds.p10, one.seconds.p90)),
            *(f"{one.processor_seconds.median:.2f}", f"{one.memory_mb.median:.0f}"),
        )
        for one in starts
    )
    _show(starts, as_json, ("database", "s to ready", "p10 to p90", "s of processor", "idle MB"), rows)


@bench.command()
def attach(
    times: Annotated[int, typer.Option(min=2, help="Processes of each kind.")] = 9,
    of_trl: Annotated[bool, typer.Option("--trl", help="A GRPOTrainer of TRL's in place of a loop.")] = False,
    as_json: AsJson = False,
) -> None:
    """How much longer a step takes while somebody attaches to a loop that runs, armed and by injection."""
    from trimtab.api.bench.attach import LOOP, TRL, bench_attach

    ways = 1 + (importlib.util.find_spec("hypno") is not None)
    delays = _measured(
        "processes", ways * times, as_json, lambda done: bench_attach(TRL if of_trl else LOOP, times, done)
    )
    rows = (
        (
            *(one.way, f"{one.step_ms:.1f}", f"{one.alone_ms.median:.1f}", f"{one.delay_ms.median:.1f}"),
            *(f"{one.worst_ms:.1f}", f"{one.held_ms.median:.1f}", f"{one.held_worst_ms:.1f}"),
            *(f"{one.answer_ms.median:.0f}", "-" if one.stopped_ms is None else f"{one.stopped_ms:.1f}"),
        )
        for one in delays
    )
    headings = ("", "step", "longer alone", "when asked", "worst", "held", "worst", "answered", "stopped")
    _show(delays, as_json, headings, rows, "ms; longest step above the median")


@bench.command()
def step(
    steps: Annotated[int, typer.Option(min=10, help="Steps of each format.")] = 40, as_json: AsJson = False
) -> None:
    """Cost of a training step with rollouts in each number format, beside BF16 rollouts in the same run."""
    from trimtab.api.bench.step import bench_step

    backend, costs = _measured("a step in each format", steps, as_json, lambda done: bench_step(steps, done))
    rows = (
        (one.format, f"{one.milliseconds:.0f}", f"{one.ratio:.2f}", _ratios(one.ratio_p10, one.ratio_p90))
        for one in costs
    )
    figures = {"backend": backend, "steps": steps, "formats": costs}
    _show(figures, as_json, ("format", "ms a step", "against BF16", "p10 to p90"), rows, f"kernels: {backend}")


@bench.command()
def linear(
    rounds: Annotated[int, typer.Option(min=10, help="Forward passes of each format and width.")] = 30,
    as_json: AsJson = False,
) -> None:
    """Cost of a fake-quantised linear layer in each number format, beside the plain one in the same run."""
    from trimtab.api.bench.linear import TOKENS, WIDTHS, bench_linear

    what = "every format at each width"
    costs = _measured(what, len(WIDTHS), as_json, lambda done: bench_linear(rounds, done))
    rows = (
        (
            *(str(one.width), one.format, one.kernels),
            *(f"{one.milliseconds:.3f}", f"{one.ratio:.2f}", _ratios(one.ratio_p10, one.ratio_p90)),
        )
        for one in costs
    )
    figures = {"tokens": TOKENS, "threads": 1, "rounds": rounds, "layers": costs}
    headings = ("width", "format", "kernels", "ms", "against float32", "p10 to p90")
    _show(figures, as_json, headings, rows, f"{TOKENS} tokens, one thread")


@bench.command()
def corrections(
    steps: Annotated[int, typer.Option(min=10, help="Pairs of steps of each.")] = 40, as_json: AsJson = False
) -> None:
    """What score centering and the BF16 twin add to a training step."""
    from trimtab.api.bench.corrections import bench_corrections

    costs = _measured("steps with and without", None, as_json, lambda done: bench_corrections(steps, done))
    rows = (
        (
            *(one.name, f"{one.milliseconds:.0f}", f"{one.overhead:+.1%}"),
            *(_shares(one.overhead_p10, one.overhead_p90), f"{one.amortised:+.1%}"),
        )
        for one in costs
    )
    _show(costs, as_json, ("", "ms a step", "added", "p10 to p90", "added a step on average"), rows)


@bench.command()
def asynchrony(
    blocks: Annotated[int, typer.Option(min=2, help="Blocks of twelve steps of each mode.")] = 12,
    as_json: AsJson = False,
) -> None:
    """What sampling ahead of the trainer gains over sampling when a step asks, on two cores."""
    from trimtab.api.bench.asynchrony import bench_asynchrony

    what = "blocks of each mode"
    modes = _measured(what, blocks, as_json, lambda done: bench_asynchrony(blocks, on_block=done))
    rows = (
        (
            *(one.mode, f"{one.steps_per_second:.1f}", f"{one.ratio:.2f}", _ratios(one.ratio_p10, one.ratio_p90)),
            *(f"{one.trainer_idle:.0%}", f"{one.sampler_idle:.0%}"),
        )
        for one in modes
    )
    _show(modes, as_json, ("", "steps/s", "ratio", "p10 to p90", "trainer idle", "sampler idle"), rows)


@bench.command()
def heads(
    rounds: Annotated[int, typer.Option(min=2, help="Generations with each size of the head.")] = 9,
    as_json: AsJson = False,
) -> None:
    """What the sampler's top log-probs cost vLLM's throughput, on SmolLM2; needs the environment of `make vllm`."""
    from trimtab.api.bench.heads import bench_heads

    costs = _measured("a generation with each size", rounds, as_json, lambda done: bench_heads(rounds, done))
    rows = (
        (str(one.head), f"{one.tokens_per_second:.0f}", f"{one.loss:+.1%}", _shares(one.loss_p10, one.loss_p90))
        for one in costs
    )
    _show(costs, as_json, ("head", "tokens a second", "lost", "p10 to p90"), rows)


@bench.command()
def trl(
    steps: Annotated[int, typer.Option(min=10, help="Pairs of steps of each workload.")] = 60, as_json: AsJson = False
) -> None:
    """A training step beside TRL's GRPOTrainer on the same model, task and batch, in float32."""
    from trimtab.api.bench.trl import bench_trl

    costs = _measured("a step of each", None, as_json, lambda done: bench_trl(steps, done))
    rows = (
        (
            *(one.workload, f"{one.ours_ms:.0f}", f"{one.trl_ms:.0f}"),
            *(f"{one.ratio:.2f}", _ratios(one.ratio_p10, one.ratio_p90)),
        )
        for one in costs
    )
    _show(costs, as_json, ("", "trimtab ms", "TRL ms", "ratio", "p10 to p90"), rows)


@bench.command()
def ladder(
    config: Annotated[Path | None, typer.Argument(help="TOML file of the run; without one, the defaults.")] = None,
    as_json: AsJson = False,
) -> None:
    """How far sampling in each number format is from BF16, with the same weights."""
    from trimtab.trainer.config import load_config
    from trimtab.trainer.ladder import ladder as climb

    rungs = _measured("formats", None, as_json, lambda done: climb(load_config(config), on_rung=done))
    rows = (
        (one.format, f"{one.std:.4f}", f"{one.largest:.2f}", f"{one.mismatch_kl:.1e}", f"{one.reward:.3f}")
        for one in rungs
    )
    _show(rungs, as_json, ("sampler", "std of log p - log q", "largest", "mismatch KL", "reward"), rows)
