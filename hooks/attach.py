"""The one call that joins a training process to an agent."""

from __future__ import annotations

import time

from trimtab.hooks.controls import Capabilities, Controls
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.transport.open import open_transport


def attach(
    url: str,
    *,
    job: str,
    attempt: int | None = None,
    controls: Controls | None = None,
    capabilities: Capabilities | None = None,
    rank: int = 0,
) -> Emitter:
    """Join the agent at `url`.

    Args:
        url: where the agent is, by scheme (see `trimtab.hooks.transport.open.OPENERS`).
        job: name of the run; the agent gets to know it by its first summary.
        attempt: grows with every restart of the job; by default the time in seconds.
        controls: the run's own controls; neutral ones by default.
        capabilities: what this trainer can change while it runs; nothing by default, and then it is only watched.
        rank: data-parallel rank of this process.

    Raises:
        ValueError: the job's name, the attempt, the rank or the URL cannot be; the message names the field.
    """
    return Emitter(
        open_transport(url),
        job=job,
        attempt=int(time.time()) if attempt is None else attempt,
        controls=controls,
        capabilities=capabilities,
        rank=rank,
    )
