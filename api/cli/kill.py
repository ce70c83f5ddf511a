"""`trimtab kill`."""

from __future__ import annotations

from trimtab.api.cli.options import AsJson, Job, Reason, Token, Url, issuer_of
from trimtab.api.cli.screen import Console
from trimtab.api.client import DEFAULT_URL, Client


def kill(job: Job, reason: Reason, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Lift every override of a job and take the agent's hands off it."""
    with Client(url, token) as client:
        controls = client.kill(job, reason=reason, issuer=issuer_of(token))
    if as_json:
        print(controls.model_dump_json())
        return
    Console().print(
        f"{job}: no override is wanted any more (generation {controls.generation}), and the agent only observes. "
        "Set its mode to let it act again.",
        highlight=False,
    )
