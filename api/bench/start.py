"""How long `trimtab serve` takes to its ready line, and what memory it holds then."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trimtab.api.bench.servers import agent, resident_mb
from trimtab.api.bench.spread import Spread

SETTLE_S = 1.0
"""After which a server that nobody asks anything is idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Starts on databases of one kind."""

    database: str
    seconds: Spread
    """From the start of the process to its ready line."""
    processor_seconds: Spread
    """What it used of the processor meanwhile, which other processes disturb less."""
    memory_mb: Spread
    """Resident memory of the idle server, MB (10^6 bytes)."""


def bench_start(times: int, on_start: Callable[[], None] = lambda: None) -> list[Start]:
    """Start `times` servers on a database that has to be made, and `times` on one that is there; Linux only."""
    with tempfile.TemporaryDirectory() as folder:
        known = Path(folder) / "known.db"
        _started(known)
        new = (Path(folder) / f"{number}.db" for number in range(times))
        made, there = [], []
        for path in new:  # in turns, so that a machine that slows down slows both
            made.append(_started(path))
            there.append(_started(known))
            on_start()
    return [_start("new", made), _start("there already", there)]


def _started(db: Path) -> tuple[float, float, float]:
    """Seconds to the ready line, seconds of the processor until then, and MB a second later."""
    began = time.perf_counter()
    with agent(str(db), db.parent) as served:
        seconds = time.perf_counter() - began
        processor = _processor_seconds(served.pid)
        time.sleep(SETTLE_S)
        return seconds, processor, resident_mb(served.pid)


def _processor_seconds(pid: int) -> float:
    """What the process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _start(database: str, starts: list[tuple[float, float, float]]) -> Start:
    seconds, processor, memory = (Spread.of(each) for each in zip(*starts, strict=True))
    return Start(database=database, seconds=seconds, processor_seconds=processor, memory_mb=memory)
