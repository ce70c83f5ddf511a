"""A driver reports what its workers have measured."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hook_runs import tensors

from trimtab.hooks.attach import attach
from trimtab.hooks.fleet import Fleet
from trimtab.hooks.meter import Meter
from trimtab.hooks.rank_emitter import RankEmitter
from trimtab.hooks.transport.memory import MemoryTransport


class Meters:
    """Workers in this process, each with a meter of its own."""

    def __init__(self, count: int) -> None:
        self.meters = [Meter() for _ in range(count)]
        self.lost = False

    def submit(self, function: Callable[[Any], Any]) -> Sequence[Any]:
        del function  # it takes from the process's one meter
        return [meter.take() for meter in self.meters]

    def ready(self, pending: Sequence[Any]) -> bool:
        return bool(pending)

    def gather(self, pending: Sequence[Any], seconds: float) -> list[Any]:
        del seconds
        if self.lost:
            raise TimeoutError("a worker is gone")
        return list(pending)


def driver(meters: Meters) -> RankEmitter:
    emitter = attach("memory:", job="run", collective=Fleet(meters))
    assert isinstance(emitter, RankEmitter)
    return emitter


def sent_by(emitter: RankEmitter) -> list[Any]:
    emitter.close()
    assert isinstance(emitter.transport, MemoryTransport)
    return emitter.transport.sent


def test_the_sum_is_of_all_workers_and_says_how_many() -> None:
    meters = Meters(3)
    emitter = driver(meters)
    for count, meter in enumerate(meters.meters):
        for _ in range(count):
            meter.observe(**tensors())
    emitter.end_step(step=0)
    emitter.end_step(step=1)
    first, second = sent_by(emitter)
    assert (first.tokens, first.ranks, first.failed_ranks) == (3 * 8, 3, 0)
    assert first.sketches["update"].n == 24
    assert (second.tokens, second.ranks) == (0, 3)


def test_a_worker_whose_measuring_fails_is_told_and_in_the_third_step_breaks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR, logger="trimtab")
    meters = Meters(2)
    emitter = driver(meters)
    for step in range(6):
        meters.meters[0].observe(**tensors())
        meters.meters[1].observe(**tensors() | {"loss_mask": "none"})
        emitter.end_step(step=step)
    assert meters.meters[1].broken
    assert emitter.stopped
    assert [(summary.tokens, summary.failed_ranks) for summary in sent_by(emitter)] == [(8, 1), (8, 1)]
    assert [record.getMessage() for record in caplog.records] == [
        "trimtab: this worker measures no more: its adapter failed in 3 steps in a row"
    ]


def test_a_worker_that_is_gone_stops_the_driver_in_three_steps_and_nothing_is_raised() -> None:
    meters = Meters(1)
    emitter = driver(meters)
    meters.lost = True
    for step in range(8):
        emitter.end_step(step=step)
    assert emitter.stopped
    assert sent_by(emitter) == []


def test_a_meter_says_what_it_has_once() -> None:
    meter = Meter()
    meter.observe(**tensors())
    assert meter.take().sum() > meter.take().sum() > 0  # what is left is that one rank speaks
