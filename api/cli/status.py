"""`trimtab status`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from trimtab.agent.state import State
from trimtab.api.cli.options import Token, Url
from trimtab.api.cli.proposals import written
from trimtab.api.cli.screen import Console
from trimtab.api.cli.tables import as_wide_as_shown, table_of
from trimtab.api.cli.telling import by_weight, telling
from trimtab.api.client import DEFAULT_URL, Client
from trimtab.api.controls_view import ControlsView
from trimtab.api.health_view import HealthView, JobView
from trimtab.api.log_view import OBSERVE_ONLY, LogView
from trimtab.api.routes.jobs import Jobs
from trimtab.hooks.controls import ControlValue

STYLE = {
    State.OK: "green",
    State.WARN: "yellow",
    State.CRITICAL: "bold red",
    State.INCONCLUSIVE: "dim",
    State.NOT_OBSERVED: "dim",
}


def status(
    job: Annotated[str | None, typer.Argument(help="Name of the job; all of them when it is missing.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what the API answers.")] = False,
) -> None:
    """Show how the jobs are, or everything about one."""
    console = Console()
    with Client(url, token) as client:
        if job is None:
            jobs = client.jobs()
            if as_json:
                print(Jobs(jobs=jobs, next=None).model_dump_json())
            else:
                show_jobs(console, jobs)
            return
        health = client.health(job)
    if as_json:
        print(health.model_dump_json())
    else:
        _show_health(console, health)


def show_jobs(console: Console, jobs: list[JobView]) -> None:
    """A line about each job."""
    if not jobs:
        console.print("no job has reported yet")
        return
    quarantine = any(one.quarantined for one in jobs)
    whole = ["state", "judged", "mode", "attempt", "step", "last", "firing", *(["quarantined"] if quarantine else [])]
    table = Table(Column("job", overflow="fold"), box=None, header_style="dim")
    for name in whole:  # a narrow terminal folds the name of the job and cuts no number
        table.add_column(name, no_wrap=True)
    for one in jobs:
        step = "-" if one.step is None else str(one.step)
        attempt = "-" if one.attempt is None else str(one.attempt)
        table.add_row(
            Text(one.name),
            _styled(one.state),
            f"{one.judged}/{one.detectors}",
            one.mode.value if one.log is None else f"{one.mode.value} (logs)",
            attempt,
            step,
            "-" if one.age is None else f"{_duration(one.age)} ago",
            str(one.firing),
            *([str(one.quarantined)] if quarantine else []),
        )
    console.print(table)
    if read := [one.name for one in jobs if one.log is not None]:
        console.print(f"{OBSERVE_ONLY}: {', '.join(read)}", highlight=False, soft_wrap=True)
    for one in jobs:
        if one.problem is not None:
            console.print(one.problem, style="yellow", highlight=False, soft_wrap=True)
        if one.silent:
            console.print(f"{one.name}: {_silence(one)}", style="yellow", highlight=False, soft_wrap=True)


def _show_health(console: Console, health: HealthView) -> None:
    line, controls = health.job, health.controls
    at = "no summary yet" if line.step is None else f"attempt {line.attempt}, step {line.step}"
    judged = f"{line.judged} of {line.detectors} detectors could judge"
    age = "" if line.age is None else f", {_duration(line.age)} ago"
    told = f"({judged})  mode {line.mode.value}  {at}{age}"
    console.print(Text(line.name, "bold"), "", _styled(line.state), told, soft_wrap=True)
    if line.log is not None:
        _show_log(console, line.log)
    if line.silent:
        told = f"{_silence(line)}; what follows was true of its last summary"
        console.print(told, style="yellow", highlight=False, soft_wrap=True)
    verdicts = table_of("detector", "state", "what was seen")
    for verdict in health.verdicts:
        shown = _styled(State.NOT_OBSERVED, verdict.state.value) if line.silent else _styled(verdict.state)
        verdicts.add_row(Text(verdict.detector), shown, Text(verdict.message))
    as_wide_as_shown().print(verdicts)
    for incident in by_weight(health.incidents):
        told = telling(incident)
        why = f" ({told})" if incident.cause is not None or incident.silenced else ""
        told = f"{incident.phase.value} since step {incident.since_step}{why}: {incident.detector}: {incident.message}"
        console.print(told, soft_wrap=True)
    for proposal in health.proposals:
        console.print(f"proposal {proposal.id}: {written(proposal)}: {proposal.reason}", soft_wrap=True)
    if line.log is None:
        console.print(f"overrides, generation {controls.generation}: {_overrides(controls)}", soft_wrap=True)
    if controls.killed:
        console.print("the kill switch is set: set the mode to let anything be overridden again", style="yellow")
    if controls.locked:
        console.print(f"locked out: {controls.locked}", style="yellow", highlight=False, soft_wrap=True)
    for refusal in controls.refusals:
        console.print(f"refused by the trainer: {refusal}", soft_wrap=True)
    if line.quarantined or health.dropped:
        console.print(f"{line.quarantined} summaries in quarantine, {health.dropped} lost by the trainer's process")


def _show_log(console: Console, log: LogView) -> None:
    lag = "when, it does not say" if log.lag_seconds is None else f"{_duration(log.lag_seconds)} after it was logged"
    console.print(f"{OBSERVE_ONLY}: {log.source}, keys of {log.framework}; newest step read {lag}", soft_wrap=True)
    for name, bound in log.censored.items():
        console.print(f"{name}: {bound}", soft_wrap=True, highlight=False)
    if log.vanished:
        console.print(f"vanished from the log: {', '.join(log.vanished)}", style="yellow", soft_wrap=True)


def _overrides(controls: ControlsView) -> str:
    refused = {name: value for name, value in controls.overrides.items() if name in controls.refused}
    others = {name: value for name, value in controls.overrides.items() if name not in refused}
    in_effect = "in effect" if controls.in_sync or refused else "not in effect yet"
    told = [f"{_written(each)} ({how})" for each, how in ((others, in_effect), (refused, "refused")) if each]
    return ", ".join(told) or "nothing"


def _styled(state: State, told: str = "") -> Text:
    return Text(told or state.value, STYLE[state])


def _silence(line: JobView) -> str:
    since = "" if line.age is None else f" for {_duration(line.age)}"
    return f"silent{since}: it has finished, was stopped, or does not reach the agent"


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _written(overrides: dict[str, ControlValue]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in overrides.items())
