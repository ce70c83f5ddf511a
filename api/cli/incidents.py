"""`trimtab incidents`, `ack`, `silence` and `unsilence`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from trimtab.agent.state import Incident, Phase, Silence
from trimtab.api.cli.options import AsJson, Detector, Job, Reason, Token, Url, issuer_of
from trimtab.api.cli.screen import Console
from trimtab.api.cli.status import STYLE
from trimtab.api.cli.tables import as_wide_as_shown, table_of
from trimtab.api.cli.telling import by_weight, telling
from trimtab.api.client import DEFAULT_URL, Client
from trimtab.api.routes.incidents import Acknowledged, Incidents
from trimtab.api.routes.silences import Silences


def incidents(
    job: Job,
    everything: Annotated[bool, typer.Option("--all", help="Those that are over as well.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Show what lasts: the incidents of a job, and who looks after them."""
    with Client(url, token) as client:
        found = [one for one in client.incidents(job) if everything or one.phase is not Phase.RESOLVED]
    if as_json:
        print(Incidents(incidents=found).model_dump_json())
        return
    table = table_of("detector", "severity", "phase", "told", "since", "looked after by", "what was seen")
    for one in by_weight(found):
        table.add_row(
            Text(one.detector),
            Text(one.severity.value, STYLE[one.severity]),
            one.phase.value,
            telling(one),
            str(one.since_step),
            Text(_carer(one)),
            Text(one.message),
        )
    as_wide_as_shown().print(table if found else "no incident is open", highlight=False)


def ack(
    job: Job, detector: Detector, reason: Reason, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False
) -> None:
    """Say that you look after an incident, for as long as it gets no worse."""
    with Client(url, token) as client:
        incident = client.acknowledge(job, detector, reason=reason, issuer=issuer_of(token))
    if as_json:
        print(Acknowledged(incident=incident).model_dump_json())
    else:
        told = (
            f"{job}: {_carer(incident)} looks after {detector}, {incident.phase.value} since step {incident.since_step}"
        )
        Console(soft_wrap=True).print(told, highlight=False)


def silence(
    job: Job,
    detector: Detector,
    reason: Reason,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps that it lasts; until it is cancelled without.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Be told nothing of a detector's incidents. They are judged and acted on all the same."""
    with Client(url, token) as client:
        _show(job, client.silence(job, detector, reason=reason, steps=steps, issuer=issuer_of(token)), as_json)


def unsilence(
    job: Job, detector: Detector, reason: Reason, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False
) -> None:
    """Be told of a detector's incidents again."""
    with Client(url, token) as client:
        _show(job, client.unsilence(job, detector, reason=reason, issuer=issuer_of(token)), as_json)


def _carer(incident: Incident) -> str:
    return "nobody" if incident.acknowledged is None else incident.acknowledged.issuer


def _show(job: str, silences: Sequence[Silence], as_json: bool) -> None:
    if as_json:
        print(Silences(silences=list(silences)).model_dump_json())
        return
    names = ", ".join(silence.fingerprint.rpartition("/")[2] for silence in silences) or "nothing"
    Console(soft_wrap=True).print(f"{job}: silenced: {names}", highlight=False)
