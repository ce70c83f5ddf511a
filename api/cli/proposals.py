"""`trimtab proposals`, `approve` and `reject`."""

from __future__ import annotations

from typing import Annotated

import typer

from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.options import AsJson, Job, Reason, Token, Url, issuer_of
from trimtab.api.cli.screen import Console
from trimtab.api.client import DEFAULT_URL, Client
from trimtab.api.proposal_view import ProposalView
from trimtab.api.routes.proposals import Proposals

Number = Annotated[int, typer.Argument(min=1, help="Number of the proposal.")]


def proposals(job: Job, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Show what the agent would do."""
    with Client(url, token) as client:
        found = client.proposals(job)
    if as_json:
        print(Proposals(proposals=found).model_dump_json())
        return
    console = Console(soft_wrap=True, highlight=False)
    for one in found:
        console.print(f"{one.id}: {written(one)}: {one.reason} ({one.steps_left} steps left)")
    if not found:
        console.print("nothing is proposed")


def approve(
    job: Job, number: Number, reason: Reason, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False
) -> None:
    """Let a proposal be done: just what it says now."""
    _decide("approve", job, number, reason, url, token, as_json)


def reject(
    job: Job, number: Number, reason: Reason, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False
) -> None:
    """Turn a proposal down."""
    _decide("reject", job, number, reason, url, token, as_json)


def written(proposal: ProposalView) -> str:
    """The changes of a proposal, in words."""
    told = [f"lift {name}" if value is None else f"{name} = {value}" for name, value in proposal.changes.items()]
    return ", ".join(told) or "no change"


def _decide(what: str, job: str, number: int, reason: str, url: str, token: str | None, as_json: bool) -> None:
    with Client(url, token) as client:
        standing = {one.id: one for one in client.proposals(job)}
        if number not in standing:
            there = ", ".join(map(str, standing)) or "none"
            raise UsageError(f"number: proposal {number} of {job} does not stand; standing: {there}")
        proposal = standing[number]
        decide = client.approve if what == "approve" else client.reject
        view = decide(job, proposal, reason=reason, issuer=issuer_of(token))
    if as_json:
        print(view.model_dump_json())
        return
    done = "is approved" if what == "approve" else "is turned down"
    told = f"{job}: proposal {number} {done}: {written(proposal)} (generation {view.generation})"
    Console(soft_wrap=True).print(told, highlight=False)
