"""At SIGTERM what is pending is delivered, and whoever goes on is as before."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hook_runs import CAN, command, tensors
from rank_threads import RankThread, run_threads

from trimtab.hooks.accumulate import Drained
from trimtab.hooks.controls import Controls
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.layout import Report
from trimtab.hooks.rank_emitter import RankEmitter
from trimtab.hooks.records import StepSummary
from trimtab.hooks.sigterm import flush_at_sigterm
from trimtab.hooks.transport.file import FileTransport
from trimtab.hooks.transport.memory import MemoryTransport
from trimtab.hooks.transport.silent import SilentTransport
from trimtab.hooks.transport.spool import read_spool


@pytest.fixture
def noted() -> Iterator[list[int]]:
    """The signals that a trainer which goes on has noted."""
    signals: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    yield signals
    signal.signal(signal.SIGTERM, before)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_run_that_only_notes_the_signal_goes_on_reporting_with_its_overrides(
    emitter: Emitter, transport: MemoryTransport, noted: list[int]
) -> None:
    off = flush_at_sigterm(emitter.flush, 2.0)
    transport.set_command(command(1, clip_low=0.1))
    for step in range(4):
        emitter.observe(**tensors())
        if step == 2:
            terminate()
        assert emitter.end_step(step=step) == Controls(clip_low=0.1)
    off()
    assert noted == [signal.SIGTERM]
    assert [summary.step for summary in transport.sent] == [0, 1, 2, 3]


def test_what_has_not_arrived_yet_is_waited_for_and_sent_once(emitter: Emitter, transport: MemoryTransport) -> None:
    arrived = threading.Event()
    taken = emitter._accumulator.drain()
    emitter._accumulator.drain = lambda: Drained(arrived.is_set, taken.read)  # type: ignore[method-assign]
    emitter.end_step(step=0)
    assert transport.sent == []
    emitter.flush(0.0)
    assert transport.sent == []
    arrived.set()
    emitter.flush(60.0)
    assert [summary.step for summary in transport.sent] == [0]
    emitter.end_step(step=1)
    emitter.close()
    assert [summary.step for summary in transport.sent] == [0, 1]
    assert (emitter.dropped, emitter.failures) == (0, 0)


def test_a_recording_is_on_disk_after_a_flush_and_goes_on(tmp_path: Any) -> None:
    transport = FileTransport(tmp_path / "recorded")
    for step in range(3):
        transport.send(Report(StepSummary(job="run", attempt=1, step=step)))
    transport.flush(60.0)
    assert [summary.step for summary in read_spool(tmp_path / "recorded")] == [0, 1, 2]
    transport.send(Report(StepSummary(job="run", attempt=1, step=3)))
    transport.close(60.0)
    assert [summary.step for summary in read_spool(tmp_path / "recorded")] == [0, 1, 2, 3]


@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_that_flushes_stays_in_the_sums_and_hears_nothing_before_the_others(late: int) -> None:
    def program(collective: RankThread) -> Any:
        transport: Any = MemoryTransport() if collective.rank == 0 else SilentTransport()
        emitter = RankEmitter(transport, collective, job="run", attempt=1, capabilities=CAN)
        controls, ahead = [], []
        for step in range(6):
            if collective.rank == 0 and step == 2:
                transport.set_command(command(1, clip_low=0.1))
            emitter.observe(**tensors())
            controls.append(emitter.end_step(step=step))
            if collective.rank == 0 and step == 2:
                pending = emitter._outbox._pending
                for one in pending:  # as a device that is done
                    one.drained = Drained(lambda: True, one.drained.read)
                emitter.flush(60.0)
                ahead = [summary.step for summary in transport.sent]
                assert emitter.controls == controls[-1]
        emitter.close()
        return controls, ahead, [summary.step for summary in getattr(transport, "sent", [])], emitter.failures

    first, second = run_threads(2, program, late=late)
    assert first[0] == second[0]
    assert first[0] == [Controls()] * (2 + late) + [Controls(clip_low=0.1)] * (4 - late)
    assert (first[1], first[2], first[3]) == ([0, 1, 2], [0, 1, 2, 3, 4, 5], 0)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_handlers_of_two_are_taken_off_in_any_order(order: tuple[int, int], noted: list[int]) -> None:
    own = signal.getsignal(signal.SIGTERM)
    flushed: list[float] = []
    offs = [flush_at_sigterm(flushed.append, seconds) for seconds in (1.0, 2.0)]
    terminate()
    assert sorted(flushed) == [1.0, 2.0]
    for i in order:
        offs[i]()
    assert signal.getsignal(signal.SIGTERM) is own
    assert noted == [signal.SIGTERM]


def test_a_handler_that_was_put_in_front_stays_and_what_was_forgotten_is_not_flushed(noted: list[int]) -> None:
    own = signal.getsignal(signal.SIGTERM)
    flushed: list[float] = []
    first = flush_at_sigterm(flushed.append, 1.0)
    inner: Any = signal.getsignal(signal.SIGTERM)

    def in_front(number: int, frame: Any) -> None:
        inner(number, frame)

    signal.signal(signal.SIGTERM, in_front)
    second = flush_at_sigterm(flushed.append, 2.0)
    first()
    terminate()
    assert flushed == [2.0]
    second()
    assert signal.getsignal(signal.SIGTERM) is in_front
    terminate()
    assert (flushed, len(noted)) == ([2.0], 2)
    signal.signal(signal.SIGTERM, own)


def test_a_flush_that_does_not_come_back_is_left_behind(noted: list[int]) -> None:
    held = threading.Event()
    off = flush_at_sigterm(lambda _: held.wait(60) and None, 0.05)
    terminate()
    assert noted == [signal.SIGTERM]
    held.set()
    off()
