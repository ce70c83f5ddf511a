"""The one call that joins a training process to an agent."""

from __future__ import annotations

import os
import time
from pathlib import Path

from trimtab.hooks.controls import Capabilities, Controls, Liveness
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.records import RecordError, check_job
from trimtab.hooks.transport.open import DEFAULT_SPOOL, Target, open_transport


def attach(
    url: str,
    *,
    job: str,
    attempt: int | None = None,
    controls: Controls | None = None,
    capabilities: Capabilities | None = None,
    rank: int | None = None,
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
        capabilities: what this trainer can change while it runs; nothing by default, and then it is only watched. On
            rank 0 only: see `docs/attach.md`.
        rank: data-parallel rank of this process; by default `RANK` where the environment has it and a `WORLD_SIZE`
            above 1, as torchrun sets them, and 0 elsewhere.
        token: bearer token, where the agent asks for one.
        spool: folder for summaries that an agent over HTTP cannot take now; None to keep them in memory only.

    Raises:
        ValueError: the URL, the job's name, the attempt or the rank cannot be, or a rank above 0 has capabilities; the
            message names the field.
    """
    check_job(job)
    rank = _environment_rank() if rank is None else rank
    if rank > 0 and capabilities is not None:
        _check_watched_only(rank, capabilities)
    return Emitter(
        open_transport(Target(url=url, job=job, rank=rank, token=token, spool=spool)),
        job=job,
        attempt=int(time.time()) if attempt is None else attempt,
        controls=controls,
        capabilities=capabilities,
        rank=rank,
    )


def _environment_rank() -> int:
    rank, size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if not rank or not size.isdecimal() or int(size) < 2:
        return 0
    if not rank.isdecimal():
        raise RecordError(f"RANK: {rank!r} in the environment is not a rank; give `rank` to attach")
    return int(rank)


def _check_watched_only(rank: int, capabilities: Capabilities) -> None:
    """The agent steers through rank 0 alone, and one rank that switches its objective by itself would diverge."""
    steered = [name for name, when in capabilities.controls.items() if when in (Liveness.LIVE, Liveness.NEXT_ROLLOUT)]
    if steered:
        raise RecordError(
            f"capabilities: rank {rank} cannot have live controls ({', '.join(steered)}), since only rank 0 gets "
            "commands. Attach on rank 0 with capabilities and broadcast the controls that its end_step returns; attach "
            "other ranks without capabilities, or not at all"
        )
