"""The one call that joins a training process to an agent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.hooks.collective import Collective
from trimtab.hooks.controls import Capabilities, Controls, Liveness
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.pause import Patience
from trimtab.hooks.rank_emitter import RankEmitter
from trimtab.hooks.records import RecordError, check_count, check_job
from trimtab.hooks.transport.base import Transport
from trimtab.hooks.transport.open import DEFAULT_SPOOL, Target, open_transport
from trimtab.hooks.transport.silent import SilentTransport


def attach(
    url: str,
    *,
    job: str,
    attempt: int | None = None,
    controls: Controls | None = None,
    capabilities: Capabilities | None = None,
    rank: int | None = None,
    collective: Collective | None = None,
    token: str | None = None,
    spool: str | Path | None = DEFAULT_SPOOL,
    patience: Patience | None = None,
) -> Emitter:
    """Join the agent at `url`; nothing is sent before the first step ends.

    Args:
        url: `http://HOST:PORT` or `https://...` of an agent; `local:PATH.db` for an agent inside this process;
            `file:DIR` to record only; `memory:` to keep everything in this process.
        job: name of the run; the agent gets to know it by its first summary.
        attempt: grows with every restart of the job; by default the time in seconds.
        controls: the run's own controls; neutral ones by default.
        capabilities: what this trainer can change while it runs; nothing by default, and then it is only watched.
        rank: data-parallel rank of this process; by default that of `collective`, else `RANK` where the environment has
            it and a `WORLD_SIZE` above 1, as torchrun sets them, else 0.
        collective: joins the processes of the job, all of which attach with it: what they measure is reported as one
            by rank 0, and they are steered as one. The attempt is rank 0's. See `docs/attach.md`.
        token: bearer token, where the agent asks for one; by default that of the environment's `TRIMTAB_TOKEN`.
        patience: how long `Emitter.wait_while_paused` waits at most; an hour by default.
        spool: folder for summaries that an agent over HTTP cannot take now; None to keep them in memory only.

    Raises:
        ValueError: the URL, the job's name, the attempt or the rank cannot be, or a rank above 0 has live controls and
            no collective; the message names the field. With a collective, where any rank cannot attach, none does.
    """
    number = int(time.time()) if attempt is None else attempt
    run: dict[str, Any] = {"job": job, "controls": controls, "capabilities": capabilities, "patience": patience}

    def opened(rank: int, *, reports: bool = True) -> Transport:
        check_job(job)
        check_count("attempt", number)
        target = Target(url=url, job=job, rank=rank, token=token, spool=spool)
        return open_transport(target) if reports else SilentTransport()

    if collective is not None:
        transport, number = _joined(collective, rank, number, opened)
        return RankEmitter(transport, collective, attempt=number, **run)
    rank = _environment_rank() if rank is None else rank
    if rank > 0 and capabilities is not None:
        _check_watched_only(rank, capabilities)
    return Emitter(opened(rank), attempt=number, rank=rank, **run)


def _joined(
    collective: Collective, rank: int | None, attempt: int, opened: Callable[..., Transport]
) -> tuple[Transport, int]:
    """This rank's transport and rank 0's attempt, where every rank can attach."""
    failure: Exception | None = None
    try:
        if rank not in (None, collective.rank):
            raise RecordError(f"rank: {rank}, but the collective says {collective.rank}; leave rank out")
        transport = opened(collective.rank, reports=collective.rank == 0)
    except Exception as error:  # the others wait to hear of it
        failure = error
    mine = [attempt if collective.rank == 0 and failure is None else 0, failure is not None]
    agreed, failed = collective.sum(np.array(mine, dtype=np.float64)).read().astype(np.int64).tolist()
    if failure is not None:
        raise failure
    if failed:
        raise RecordError(f"collective: {failed} of {collective.size} ranks could not attach; they say why")
    return transport, agreed


def _environment_rank() -> int:
    rank, size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if not rank or not size.isdecimal() or int(size) < 2:
        return 0
    if not rank.isdecimal():
        raise RecordError(f"RANK: {rank!r} in the environment is not a rank; give `rank` to attach")
    return int(rank)


def _check_watched_only(rank: int, capabilities: Capabilities) -> None:
    """Ranks agree through a collective alone, and one that switched its objective by itself would diverge."""
    steered = [name for name, when in capabilities.controls.items() if when in (Liveness.LIVE, Liveness.NEXT_ROLLOUT)]
    if steered:
        raise RecordError(
            f"capabilities: rank {rank} cannot have live controls ({', '.join(steered)}) by itself, since only rank 0 "
            "gets commands; give every rank a collective"
        )
