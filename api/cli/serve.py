"""`trimtab serve`."""

from __future__ import annotations

import gc
import json
import logging
import sys
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from trimtab.agent.config import AgentConfig
from trimtab.api.access.doorman import AccessSettings
from trimtab.api.access.limits import LimitError, Limits, Rate
from trimtab.api.calibration import references
from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.options import Db
from trimtab.api.cli.progress import bar
from trimtab.api.cli.screen import Console
from trimtab.api.logs import LogFormat, LogLevel, log_to
from trimtab.api.notify.settings import alert_settings
from trimtab.api.restore import UnreadableJobError
from trimtab.api.retention import Keep
from trimtab.api.server import DEFAULT_PORT, bind
from trimtab.api.server import serve as serve_until_ended
from trimtab.api.service import Service
from trimtab.api.settings import Settings
from trimtab.storage.database import Database
from trimtab.storage.serving import sole_server

SWITCH_S = 0.0005
"""Seconds that a thread may go on while others wait for the interpreter. With Python's 5 ms, the event loop would get a
turn only every 5 ms while the writer's thread folds summaries, and every request needs several."""
GARBAGE = 50_000
"""New objects after which Python looks for garbage among them: states are values without cycles, so there is next to
none, and with 700 a tenth of the time goes into looking."""
_log = logging.getLogger("trimtab.api")


def serve(
    db: Db = "trimtab.db",
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than this machine's need an admin's token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any free one.")] = DEFAULT_PORT,
    calibration: Annotated[
        list[Path] | None,
        typer.Option(help="File of `trimtab calibrate`, for jobs that are new and in its format; may be repeated."),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="Name by which browsers may call the service, beside this machine's; may be repeated."),
    ] = None,
    ingest_limit: Annotated[
        str, typer.Option(metavar="RATE/BURST", help="Requests with summaries: a second, and at once, by token.")
    ] = "50/200",
    control_limit: Annotated[
        str, typer.Option(metavar="RATE/BURST", help="Requests that change something else, by token.")
    ] = "1/10",
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address of a proxy whose X-Forwarded-For and -Proto are believed; may be repeated."),
    ] = None,
    allow_private_webhooks: Annotated[
        list[str] | None,
        typer.Option(metavar="CIDR", help="Network of your own that webhooks may reach; may be repeated."),
    ] = None,
    allow_http_webhooks: Annotated[
        bool, typer.Option("--allow-http-webhooks", help="Let webhooks be reached without TLS.")
    ] = False,
    webhook_proxy: Annotated[
        str, typer.Option(metavar="URL", help="Proxy by which alone webhooks are reached, and which says which may be.")
    ] = "",
    keep_summaries: Annotated[
        int | None,
        typer.Option(
            min=1000, metavar="N", help="Keep only each job's newest N summaries whole, and roll-ups of older ones."
        ),
    ] = None,
    keep_days: Annotated[
        float | None,
        typer.Option(min=0.01, metavar="D", help="Keep only the summaries of the last D days whole."),
    ] = None,
    public_url: Annotated[
        str, typer.Option(metavar="URL", help="Where people reach the dashboard, for links in messages.")
    ] = "",
    log_format: Annotated[
        LogFormat | None,
        typer.Option(help="How the log, on standard error, is written.", show_default="text on a terminal, else json"),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="The least that is logged.")] = LogLevel.INFO,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ready line as JSON.")] = False,
) -> None:
    """Run the agent: take step summaries, watch, and answer with commands."""
    form = log_format or (LogFormat.TEXT if sys.stderr.isatty() else LogFormat.JSON)
    log_to(sys.stderr, form, log_level)
    config = AgentConfig(references=references(calibration or []))
    limits = Limits(ingest=_rate("ingest-limit", ingest_limit), control=_rate("control-limit", control_limit))
    access = AccessSettings(allowed_hosts=frozenset(map(str.lower, allowed_host or ())), limits=limits)
    alerts = alert_settings(
        http=allow_http_webhooks,
        private=allow_private_webhooks or (),
        proxy=webhook_proxy,
        public_url=public_url,
    )
    keep = Keep(summaries=keep_summaries, days=keep_days)
    settings = Settings(access=access, alerts=alerts, keep=keep, trusted_proxies=tuple(trusted_proxy or ()))
    sys.setswitchinterval(SWITCH_S)
    gc.freeze()  # what is loaded by now stays: looking through it for garbage would hold up requests for 50 ms
    gc.set_threshold(GARBAGE, 20, 100)
    database = Database(db)
    with sole_server(database):
        database.migrate()
        with closing(Service(database, default_config=config)) as service:
            listener = bind(host, port, database)
            _log.info("trimtab %s starts on %s", version("trimtab"), database.name)
            _fold_again(service, quiet=as_json or form is LogFormat.JSON)
            serve_until_ended(service, listener, lambda url: _tell(url, database.name, as_json), settings)
    _log.info("has ended")


def _tell(url: str, db: str, as_json: bool) -> None:
    """The ready line."""
    if as_json:
        print(json.dumps({"ready": True, "url": url, "db": db}), flush=True)
        return
    Console(soft_wrap=True).print(Text.assemble("trimtab serves ", (url, "bold"), f" from {db} (Ctrl-C ends it)"))


def _rate(option: str, text: str) -> Rate:
    try:
        return Rate.parse(text)
    except LimitError as error:
        raise UsageError(f"{option}: {error}") from error


def _fold_again(service: Service, *, quiet: bool) -> None:
    """Bring the states that another version left up to date before a trainer waits for them."""
    stale = service.stale()
    if stale:
        _log.info("folding the ledgers of %d jobs again, which another version left", len(stale))
    with bar("folding ledgers again", sum(job.rows for job in stale), quiet=quiet) as watch:
        for job in stale:
            try:
                service.rebuild(job.name, watch)
            except UnreadableJobError as error:
                _log.warning("%s", error)
