"""The one call that joins a training process to an agent."""

from __future__ import annotations

import time
from pathlib import Path

from trimtab.hooks.controls import Capabilities, Controls
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.records import check_job
from trimtab.hooks.transport.open import DEFAULT_SPOOL, Target, open_transport


def attach(
    url: str,
    *,
    job: str,
    attempt: int | None = None,
    controls: Controls | None = None,
    capabilities: Capabilities | None = None,
    rank: int = 0,
    token: str | None = None,
    spool: str | Path | None = DEFAULT_SPOOL,
) -> Emitter:
    """Join the agent at `url`; nothing is sent before the first step ends.

    Args:
        url: `http://HOST:PORT` or `https://...` of an agent; `local:PATH.db` for an agent inside this process;
            `file:DIR` to record only; `memory:` to keep everything in this process.
        job: name of the run; the agent gets to know it by its first summary.
        attempt: grows with every restart of the job; by default the time in seconds.
        controls: the run's own controls; neutral ones by default.
        capabilities: what this trainer can change while it runs; nothing by default, and then it is only watched.
        rank: data-parallel rank of this process.
        token: bearer token, where the agent asks for one.
        spool: folder for summaries that an agent over HTTP cannot take now; None to keep them in memory only.

    Raises:
        ValueError: the URL, the job's name, the attempt or the rank cannot be; the message names the field.
    """
    check_job(job)
    return Emitter(
        open_transport(Target(url=url, job=job, rank=rank, token=token, spool=spool)),
        job=job,
        attempt=int(time.time()) if attempt is None else attempt,
        controls=controls,
        capabilities=capabilities,
        rank=rank,
    )
