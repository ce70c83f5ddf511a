"""Deliver what a spool directory holds, without a training process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trimtab.hooks.transport.connection import Connection
from trimtab.hooks.transport.spool import Spool


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What became of the summaries of a spool directory."""

    sent: int
    """Taken by the agent, and taken off the disk."""
    rejected: int
    """Refused by the agent for good, and moved to the directory's folder `rejected`."""
    left: int = 0
    """Still there: the agent could not be reached, asked for a pause, or did not let us in."""
    barred: str = ""
    """Why the agent did not let us in; empty where it did."""
    damaged: int = 0
    """Lost: what the disk holds of them is no summary any more."""


def deliver(spool_dir: str | Path, url: str, token: str | None = None) -> Delivered:
    """Deliver a `file:` recording, or what was left for an agent that was away, to the agent at `url`.

    The oldest summary goes first, and the first that finds no agent ends it. Doing it again is safe: the agent ignores
    what it has already seen.

    Raises:
        ValueError: the URL has no host, or is not HTTP; or the token can be none.
        OSError: there is no such directory, another process is using it, it cannot be read to the end now, or a
            refused summary cannot be kept. What was not delivered stays.
    """
    agent, directory = Connection(url, token), Path(spool_dir)
    spool, rejects = Spool(directory), Spool(directory / "rejected")
    _claim(spool)
    sent = rejected = 0
    barred = ""
    try:
        while (payload := spool.peek()) is not None:
            answer = agent.post(payload)
            if answer.delivered:
                sent += 1
            elif answer.rejected:
                if not rejects.append(payload):
                    raise OSError(f"{rejects.directory}: does not take a summary that the agent refused")
                rejected += 1
            else:
                barred = answer.barred
                break
            spool.pop()
        if spool.unread is not None:
            raise OSError(f"{directory}: cannot be read to the end now: {spool.unread}; do it again later")
        return Delivered(sent=sent, rejected=rejected, left=spool.count(), barred=barred, damaged=spool.dropped)
    finally:
        agent.hang_up()
        for used in (spool, rejects):
            used.close()


def _claim(spool: Spool) -> None:
    if not spool.exists():
        raise FileNotFoundError(f"{spool.directory}: nothing was recorded here")
    try:
        spool.claim()
    except BlockingIOError:
        raise BlockingIOError(f"{spool.directory}: a running process is using it") from None
