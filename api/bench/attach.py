"""What it costs a training loop that somebody attaches to it while it runs: its longest steps, before and meanwhile.

A loop of plain PyTorch, or a trainer of TRL's, runs in a process of its own, which notes when each step began. A step
is as long as it takes from its beginning to the next one's. For each attachment, the steps from the request to the
answer are compared with those of stretches as long before, in which the loop is left alone but the machine is as busy.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from trimtab.api.bench.spread import Spread
from trimtab.hooks.armed import stub
from trimtab.hooks.armed.contact import ask, wake
from trimtab.hooks.armed.inject import Stop, injector
from trimtab.hooks.armed.process import process

WARM_UP_S = 1.5
"""Of training, until its steps are as long as they will be."""
ALONE_S = 2.0
"""Of training between two attachments, beside which they are held."""
ATTACH = {"do": "attach", "job": "bench", "wait": 10.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What trains, and how its trainer is found."""

    path: Path
    found_by: dict[str, str]


LOOP = Program(
    path=Path(__file__).with_name("attach_loop.py"),
    found_by={"class": "__main__.Loop", "adapter": "__main__.attach"},
)
"""Of plain PyTorch."""
TRL = Program(path=Path(__file__).with_name("attach_trl.py"), found_by={})
"""By the table of frameworks."""
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Attachments of one kind, each the first in its process."""

    way: str
    """`armed`, or `injected`."""
    step_ms: float
    """Median step of the loops when they were left alone."""
    alone_ms: Spread
    """Longest step above that median, in a stretch as long as an attachment takes in which nobody asked anything."""
    delay_ms: Spread
    """The same while the process was asked, imported trimtab and was attached to."""
    worst_ms: float
    """Its largest."""
    held_ms: Spread
    """Longest time in one of these steps in which the main thread neither ran nor waited for a processor that others
    had: it waited for the interpreter's lock, or was stopped. What else runs on the machine hardly changes it."""
    held_worst_ms: float
    """Its largest."""
    answer_ms: Spread
    """From the request to the answer."""
    stopped_ms: float | None
    """Longest time for which an injected process was seen stopped."""


def bench_attach(program: Program, times: int, on_attached: Callable[[], None] = lambda: None) -> list[Delay]:
    """Attach to `times` processes that are armed, and where hypno is installed to as many that are not."""
    ways = ["armed"] + ["injected"] * (importlib.util.find_spec("hypno") is not None)
    found: dict[str, list[_Once]] = {way: [] for way in ways}
    for _ in range(times):
        for way in ways:
            found[way].append(_attached(program, way))
            on_attached()
    return [_delay(way, each) for way, each in found.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Once:
    step_ms: float
    alone_ms: float
    delay_ms: float
    held_ms: float
    answer_ms: float
    stopped_ms: float | None


def _attached(program: Program, way: str) -> _Once:
    with tempfile.TemporaryDirectory() as folder:
        out, stop = Path(folder) / "steps.json", Path(folder) / "stop"
        run = f"import runpy; runpy.run_path({str(program.path)!r}, run_name='__main__')"
        command = [sys.executable, "-c", f"{_stub() if way == 'armed' else ''}{run}", str(out), str(stop)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
            try:
                assert running.stdout is not None
                running.stdout.readline()
                time.sleep(WARM_UP_S + ALONE_S)
                request = {**ATTACH, **program.found_by, "url": f"file:{folder}/recorded"}
                asked, answered, stops = _ask(running.pid, way, request)
                time.sleep(ALONE_S)
                stop.touch()
                running.wait(TIMEOUT_S)
            finally:
                running.kill()
        return _compared(json.loads(out.read_text())["began"], asked, answered, stops)


def _stub() -> str:
    """What arms a process without writing to the environment that it runs in."""
    return (
        "import importlib.util, sys; "
        f"spec = importlib.util.spec_from_file_location({stub.NAME!r}, {stub.__file__!r}); "
        "module = importlib.util.module_from_spec(spec); sys.modules[spec.name] = module; "
        "spec.loader.exec_module(module); "
    )


def _ask(pid: int, way: str, request: dict[str, Any]) -> tuple[float, float, list[Stop]]:
    """When the process was asked and when it had answered, in seconds since boot."""
    found, stops = process(pid), list[Stop]()
    waking = wake if way == "armed" else injector(found, stops)
    asked = time.monotonic()
    ask(found, request, timeout=TIMEOUT_S, waking=waking)
    return asked, time.monotonic(), stops


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    start: float
    end: float
    held_ms: float

    @property
    def ms(self) -> float:
        return 1000 * (self.end - self.start)


def _compared(began: list[list[float]], asked: float, answered: float, stops: list[Stop]) -> _Once:
    steps = [
        _Step(start=a, end=b, held_ms=max(0.0, 1000 * (b - a) - (ran + waited - ran_before - waited_before) / 1e6))
        for (a, ran_before, waited_before), (b, ran, waited) in pairwise(began)
    ]
    usual = statistics.median(step.ms for step in steps if asked - ALONE_S <= step.start and step.end < asked)
    took = answered - asked

    def within(since: float) -> list[_Step]:
        """Steps that ran in the stretch of `took` seconds from then on."""
        return [step for step in steps if step.end > since and step.start < since + took]

    stretches = [within(asked - (number + 1) * took) for number in range(max(1, int(ALONE_S / took)))]
    return _Once(
        step_ms=usual,
        alone_ms=statistics.median(max(step.ms for step in each) - usual for each in stretches if each),
        delay_ms=max(step.ms for step in within(asked)) - usual,
        held_ms=max(step.held_ms for step in within(asked)),
        answer_ms=1000 * took,
        stopped_ms=1000 * max(stop.seconds for stop in stops) if stops else None,
    )


def _delay(way: str, each: list[_Once]) -> Delay:
    stopped = [one.stopped_ms for one in each if one.stopped_ms is not None]
    return Delay(
        way=way,
        step_ms=statistics.median(one.step_ms for one in each),
        alone_ms=Spread.of(one.alone_ms for one in each),
        delay_ms=Spread.of(one.delay_ms for one in each),
        worst_ms=max(one.delay_ms for one in each),
        held_ms=Spread.of(one.held_ms for one in each),
        held_worst_ms=max(one.held_ms for one in each),
        answer_ms=Spread.of(one.answer_ms for one in each),
        stopped_ms=max(stopped) if stopped else None,
    )
