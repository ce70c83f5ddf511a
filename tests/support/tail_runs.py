"""A job's log in JSON lines, and a reader of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.api.service import Service
from trimtab.api.tail.cursor import CursorFile
from trimtab.api.tail.jsonl import JsonLines
from trimtab.api.tail.tailer import Tailer
from trimtab.hooks.records import StepSummary
from trimtab.hooks.transport.connection import Connection
from trimtab.storage.codec import SUMMARY


def trl_row(step: int, **changes: Any) -> dict[str, Any]:
    """What TRL logs of a step; a value of None is left out."""
    values: dict[str, Any] = {
        "loss": 0.0625,
        "grad_norm": 0.25,
        "reward": 0.5,
        "entropy": 0.5,
        "frac_reward_zero_std": 0.25,
        "completions/mean_length": 64.0,
        "completions/clipped_ratio": 0.0,
        "sampling/importance_sampling_ratio/max": 3.0,
    }
    return {"step": step, **{key: value for key, value in {**values, **changes}.items() if value is not None}}


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


@dataclass
class Reading:
    """A log, and how it is read."""

    path: Path
    cursor: Path
    url: str
    job: str = "run"
    now: float = 1000.0
    agents: dict[str, Connection] = field(default_factory=dict)

    def tailer(self, url: str | None = None, **more: Any) -> Tailer:
        """A reader that goes on from the cursor; its file is let go at once, as by a process that has ended."""
        store, at = CursorFile(self.cursor), url or self.url
        agent = self.agents.setdefault(at, Connection(at))
        source, path = JsonLines(self.path), str(self.path)
        try:
            return Tailer(source, path=path, job=self.job, store=store, agent=agent, clock=lambda: self.now, **more)
        finally:
            store.close()

    def close(self) -> None:
        """Hang up."""
        for agent in self.agents.values():
            agent.hang_up()


def summaries(service: Service, job: str = "run") -> list[StepSummary]:
    """Those in the ledger, in its order."""
    return [SUMMARY.decode(entry.payload) for entry in service.store.recorded(job).entries]
