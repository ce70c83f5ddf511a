"""`trimtab attach` and `trimtab detach`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer

from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.options import Token, Url
from trimtab.api.cli.screen import Console
from trimtab.api.client import DEFAULT_URL
from trimtab.hooks.armed.contact import ask, wake
from trimtab.hooks.armed.inject import Stop, injector
from trimtab.hooks.armed.process import ContactError, Process, ProcessError, by_command, owned, process
from trimtab.hooks.records import check_job

Pid = Annotated[int | None, typer.Option(min=1, help="Number of the process.", show_default=False)]
Command = Annotated[
    str | None,
    typer.Option("--job", help="Text that the command line of one armed process holds.", show_default=False),
]
Inject = Annotated[
    bool,
    typer.Option(
        "--inject",
        help="Put the code into a process that was not armed; needs --i-accept-the-risk, and below Python 3.14 hypno.",
    ),
]
Accepted = Annotated[
    bool,
    typer.Option("--i-accept-the-risk", help="That a process is stopped for a moment, and may hang or end by it."),
]
Timeout = Annotated[float, typer.Option(min=0.1, help="Seconds to wait for the process's answer.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


def attach(
    job_name: Annotated[str, typer.Option(help="Name of the run, for the agent.")],
    pid: Pid = None,
    command: Command = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    trainer: Annotated[
        str | None,
        typer.Option(help="Full name of the trainer's class, where it is no framework's that trimtab knows."),
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option(help="Full name of the function that attaches to --trainer: adapter(trainer, url, job=, token=)."),
    ] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the process to train.")] = 5.0,
    inject: Inject = False,
    accepted: Accepted = False,
    timeout: Timeout = 30.0,
    as_json: AsJson = False,
) -> None:
    """Attach to a training process that runs already, and was armed at its start (`trimtab arm`).

    Its trainer is found on the stacks of its threads, and attached to by the adapter of its framework, in a thread
    beside training.
    """
    if (trainer is None) != (adapter is None):
        raise UsageError("trainer, adapter: give both or neither")
    if wait >= timeout:
        raise UsageError(f"wait: {wait:g} s leaves nothing of the {timeout:g} s of --timeout")
    try:
        check_job(job_name)
    except ValueError as error:
        raise UsageError(f"job-name: {error}") from error
    request = {"do": "attach", "url": url, "job": job_name, "token": token, "wait": wait}
    if trainer is not None:
        request |= {"class": trainer, "adapter": adapter}
    answer = _asked(pid, command, request, inject=inject, accepted=accepted, timeout=timeout)
    _tell(answer, "process {pid}: {trainer} is attached to {url} as {job}", as_json)


def detach(
    pid: Pid = None,
    command: Command = None,
    inject: Inject = False,
    accepted: Accepted = False,
    timeout: Timeout = 30.0,
    as_json: AsJson = False,
) -> None:
    """Take away again what `trimtab attach` put into a running process; everything is as it was before."""
    answer = _asked(pid, command, {"do": "detach"}, inject=inject, accepted=accepted, timeout=timeout)
    _tell(answer, "process {pid}: {job} is detached from {url}", as_json)


def _asked(
    pid: int | None, command: str | None, request: dict[str, Any], *, inject: bool, accepted: bool, timeout: float
) -> dict[str, Any]:
    """The process's answer, with how long an injection stopped it."""
    if (pid is None) == (command is None):
        raise UsageError("pid, job: give one of them")
    if inject and not accepted:
        raise UsageError(
            "inject: code is put into the process from outside, which stops it for a moment, and may hang or end it; "
            "say --i-accept-the-risk, or arm the environment (trimtab arm) before the job starts"
        )
    if inject and pid is None:
        raise UsageError("inject: give --pid; command lines are looked for among armed processes")
    stops: list[Stop] = []
    try:
        found = owned(process(pid)) if pid is not None else by_command(command or "")
        waking: Callable[[Process], None] = injector(found, stops) if inject else wake
        answer = ask(found, request, timeout=timeout, waking=waking)
    except (ContactError, ProcessError) as error:
        raise UsageError(str(error)) from error
    for stop in stops:
        answer |= {"stopped_seconds": stop.seconds, "stopped_resolution_seconds": stop.resolution}
    return answer


def _tell(answer: dict[str, Any], sentence: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({name: value for name, value in answer.items() if name != "nonce"}))
        return
    console = Console(soft_wrap=True, highlight=False)
    try:
        told = sentence.format_map(answer)
    except KeyError as error:
        raise UsageError(f"the process has done it and answers without {error}: it has another trimtab") from error
    console.print(told)
    if "stopped_seconds" in answer:
        stopped, apart = (1000 * answer[f"stopped_{name}"] for name in ("seconds", "resolution_seconds"))
        console.print(f"its main thread was seen stopped for {stopped:.1f} ms, by samples at most {apart:.1f} ms apart")
