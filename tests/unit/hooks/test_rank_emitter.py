"""Several ranks measure apart, and report and are steered as one: at once, and with sums that are read a step late."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from hook_runs import CAN, command, tensors
from rank_play import Played, Step, play
from rank_threads import RankThread, run_threads
from token_batches import accumulated, poisoned, random_batch

import trimtab
from trimtab.hooks.accumulate import Drained
from trimtab.hooks.collective import Collective
from trimtab.hooks.controls import Capabilities, Controls
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.layout import Report
from trimtab.hooks.native import LOADER
from trimtab.hooks.rank_emitter import RankEmitter
from trimtab.hooks.records import StepSummary
from trimtab.hooks.told import CAPACITY
from trimtab.hooks.transport.memory import MemoryTransport
from trimtab.hooks.transport.silent import SilentTransport

both = pytest.mark.parametrize("late", [0, 1])


@pytest.fixture(autouse=True)
def one_way_to_measure() -> None:
    """Else the compiled sums may take over from numpy's, which round otherwise, in the middle of a test."""
    LOADER.load(wait=True)


def assert_pooled(merged: StepSummary, *batches: dict[str, Any], rtol: float = 1e-12) -> None:
    """Counts exactly, sums to rounding, as one process that observed everything."""
    wanted = accumulated(*batches)
    assert (merged.nonfinite, set(merged.sketches)) == (wanted.nonfinite, set(wanted.sketches))
    for name, sketch in wanted.sketches.items():
        for ours, theirs in zip(merged.sketches[name].signs(), sketch.signs(), strict=True):
            assert (ours.bins, ours.counts) == (theirs.bins, theirs.counts)
            np.testing.assert_allclose(ours.sums, theirs.sums, rtol=rtol, atol=rtol)
    for sign in ("negative", "zero", "positive"):
        ours, theirs = getattr(merged, sign), getattr(wanted, sign)
        assert (ours.tokens, ours.entropy_tokens) == (theirs.tokens, theirs.entropy_tokens)
        np.testing.assert_allclose(ours.entropy, theirs.entropy, rtol=rtol)


@both
def test_uneven_ranks_report_what_one_process_would(late: int) -> None:
    batches = [random_batch(seed, (2 + 3 * seed, 30)) for seed in range(4)]
    batches[1] = poisoned(batches[1], 1)
    steps = [Step(batches={0: batches[:1], 2: batches[1:]}), Step(batches={1: batches[2:3]})]
    first, *others = run_threads(3, play, steps, late=late)
    assert [(item.step, item.ranks, item.failed_ranks, item.rank) for item in first.sent] == [
        (0, 3, 0, 0),
        (1, 3, 0, 0),
    ]
    assert_pooled(first.sent[0], *batches)
    assert_pooled(first.sent[1], batches[2])
    assert first.sent[0].scalars == {"loss": 0.5}
    for rank in others:
        assert rank.last is not None
        assert (rank.last.sketches, rank.last.positive) == (first.sent[1].sketches, first.sent[1].positive)


def commanded(late: int) -> list[Played]:
    steps = [Step() for _ in range(5)]
    steps[1] = Step(command=command(1, clip_low=0.1, centering=True, clip_high=0.3))
    steps[3] = Step(command=command(2, centering=True))
    return run_threads(3, play, steps, late=late)


@both
def test_a_command_takes_effect_on_all_ranks_at_the_same_step(late: int) -> None:
    first, *others = commanded(late)
    before, tight, after = Controls(), Controls(clip_low=0.1, centering=True), Controls(centering=True)
    assert first.controls == ([before, before] if late else [before]) + [tight] * 2 + [after] * (2 - late)
    assert all((rank.controls, rank.generations) == (first.controls, first.generations) for rank in others)
    refused = [item for item in first.sent if item.refusals]
    assert [item.refusals for item in refused] == [("clip_high: absent in this trainer",)] * 2
    assert [item.generation for item in first.sent] == [0, *first.generations[:-1]]


@both
def test_only_rank_0_says_what_is_possible(late: int) -> None:
    def program(collective: Collective) -> Played:
        can = CAN if collective.rank == 0 else Capabilities(controls={})
        return play(collective, [Step(command=command(1, clip_low=0.1)), Step()], capabilities=can)

    assert [played.controls[-1].clip_low for played in run_threads(2, program, late=late)] == [0.1, 0.1]


@both
def test_a_command_that_is_too_large_is_refused_and_reported(late: int) -> None:
    large = command(1, centering=True, clip_low="x" * CAPACITY)
    first, second = run_threads(2, play, [Step(command=large), Step(), Step()], late=late)
    assert first.controls == second.controls == [Controls()] * 3
    assert first.sent[-1].generation == 1
    assert first.sent[-1].refusals[0].startswith("overrides: ")


@both
def test_a_rank_that_cannot_measure_is_counted_and_the_others_are_reported(late: int) -> None:
    good, bad = random_batch(1), {"train_logprobs": "none"}
    steps = [Step(batches={0: [good], 1: [bad, good]}), Step(batches={0: [good], 1: [good]})]
    first, second = run_threads(2, play, steps, late=late)
    assert [(item.ranks, item.failed_ranks) for item in first.sent] == [(2, 1), (2, 0)]
    assert_pooled(first.sent[0], good, good)
    assert (first.failures, second.failures) == (0, 1)


@both
def test_a_restore_begins_the_same_attempt_everywhere_and_old_commands_end_with_the_old_one(late: int) -> None:
    steps = [Step(command=command(1, clip_low=0.1)), Step(), Step(), Step(command=command(2, clip_low=0.4))]
    steps += [Step(attempt=2, base=Controls(lr_scale=0.5)), Step(base=Controls(lr_scale=0.5))]
    first, second = run_threads(2, play, steps, late=late)
    assert (first.attempt, second.attempt) == (2, 2)
    assert first.controls == second.controls
    # The second command was told in the step before the attempt: heard at once, or not any more.
    assert first.controls[-1] == Controls(clip_low=0.1 if late else 0.4, lr_scale=0.5)
    assert [(item.attempt, item.step) for item in first.sent] == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 4), (2, 5)]


@both
def test_an_override_that_all_ranks_refuse_does_not_come_back(late: int) -> None:
    steps = [Step(command=command(1, centering=True, clip_low=0.1)), Step(), Step(refuse="centering"), Step(), Step()]
    first, second = run_threads(2, play, steps, late=late)
    assert first.controls == second.controls
    assert first.controls[-1] == Controls(clip_low=0.1)
    assert first.sent[-1].refusals == ("centering: not to be had",)


@both
def test_the_switch_takes_effect_on_all_ranks_at_the_same_step(
    late: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TRIMTAB_DISABLE", "")
    on, off = {0: {"TRIMTAB_DISABLE": ""}}, {0: {"TRIMTAB_DISABLE": "1"}}
    steps = [Step(command=command(1, clip_low=0.1)), Step(), Step(environment=off), Step(), Step(environment=on)]
    steps += [Step(), Step(command=command(2, clip_low=0.4)), Step(), Step()]
    first, second = run_threads(2, play, steps, late=late)
    assert first.controls == second.controls
    tight, own, new = Controls(clip_low=0.1), Controls(), Controls(clip_low=0.4)
    assert first.controls == (
        [own, *[tight] * 2, *[own] * 4, *[new] * 2] if late else [*[tight] * 2, *[own] * 4, *[new] * 3]
    )
    assert [item.step for item in first.sent] == [0, 1, 4, 5, 6, 7, 8]
    assert sum("switched off by a person" in record.getMessage() for record in caplog.records) == 2


@both
def test_resuming_goes_on_with_the_checkpoint_unless_rank_0_is_switched_off(
    late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(collective: Collective) -> tuple[Controls, int]:
        with trimtab.attach("memory:", job="run", attempt=1, collective=collective) as emitter:
            emitter.resume(base=Controls(), overrides={"clip_low": 0.1}, generation=4)
            return emitter.controls, emitter.generation

    assert run_threads(2, program, late=late) == [(Controls(clip_low=0.1), 4)] * 2
    monkeypatch.setenv("TRIMTAB_DISABLE", "1")
    assert run_threads(2, program, late=late) == [(Controls(), 0)] * 2


class Broken(MemoryTransport):
    """A transport with a bug from step 2 on."""

    def send(self, report: Report) -> None:
        if report.summary.step >= 2:
            raise RuntimeError("no")
        super().send(report)


def steady(collective: Collective, transport: Any) -> tuple[list[Controls], list[int | None], int]:
    """Ten steps: controls, the step of the last summary after each, and what was lost."""
    chosen = transport() if collective.rank == 0 else SilentTransport()
    emitter = RankEmitter(chosen, collective, job="run", attempt=1, capabilities=CAN)
    if collective.rank == 0:
        chosen.set_command(command(1, clip_low=0.1))
    controls, last = [], []
    for step in range(10):
        emitter.observe(**tensors())
        controls.append(emitter.end_step(step=step))
        last.append(emitter.last_summary and emitter.last_summary.step)
    emitter.close()
    return controls, last, emitter.dropped


@both
def test_reporting_that_fails_for_good_on_rank_0_stops_on_all_and_the_sums_go_on(
    late: int, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = run_threads(2, steady, Broken, late=late)
    assert first[:2] == second[:2]
    assert first[0][-1] == Controls(clip_low=0.1)
    assert (first[1][-1], first[2]) == (4 + late, 8 - late)
    assert sum("stopped: reporting failed for good on 1 of 2 ranks" in one.getMessage() for one in caplog.records) == 2


class Mute(MemoryTransport):
    """A transport that breaks when it is asked for a command."""

    def command(self) -> None:
        raise RuntimeError("no")


@both
def test_a_rank_that_fails_in_everything_still_takes_part(late: int) -> None:
    def program(collective: Collective) -> Any:
        if collective.rank == 0:
            transport = Mute()
            emitter: Emitter = RankEmitter(transport, collective, job="run", attempt=1)
        else:
            emitter = RankEmitter(SilentTransport(), collective, job="run", attempt=1)
            emitter._accumulator = None  # type: ignore[assignment]
        for step in range(8):
            emitter.observe(**tensors())
            assert emitter.end_step(step=step) == Controls()
        return emitter.dropped, [item.failed_ranks for item in getattr(emitter.transport, "sent", [])]

    first, second = run_threads(2, program, late=late)
    assert (first[0], second[0]) == (5 - late, 5 - late)
    assert first[1] == [2, 2, 2]


class Lost:
    """A collective whose other ranks are gone."""

    rank, size, late = 0, 2, 0

    def __init__(self) -> None:
        self.calls = 0

    def sum(self, host: np.ndarray, device: Any = None) -> Drained:  # noqa: ARG002
        self.calls += 1
        raise RuntimeError("Connection closed by peer")


def test_a_collective_that_fails_is_counted_and_called_all_the_same() -> None:
    collective, transport = Lost(), MemoryTransport()
    emitter = RankEmitter(transport, collective, job="run", attempt=1)
    for step in range(6):
        emitter.observe(**tensors())
        assert emitter.end_step(step=step) == Controls()
    emitter.close()
    emitter.end_step(step=7)
    assert (collective.calls, emitter.dropped, emitter.failures, transport.sent) == (6, 6, 6, [])


def test_sums_of_a_device_are_added_to_those_of_the_host() -> None:
    """The path for accelerators, which runs on any device."""
    from trimtab.hooks.accumulate_torch import DeviceSums
    from trimtab.hooks.records import TokenBatch

    mine, theirs = random_batch(1), random_batch(2)

    def program(collective: RankThread) -> StepSummary | None:
        with trimtab.attach("memory:", job="run", attempt=1, collective=collective) as emitter:
            sums = emitter._accumulator._device = DeviceSums()
            as_torch = {name: torch.from_numpy(value) for name, value in (mine, theirs)[collective.rank].items()}
            sums.add(TokenBatch(**as_torch), "recomputed")
            emitter.observe(**mine)
            emitter.end_step(step=0)
            return emitter.last_summary

    first, second = run_threads(2, program)
    assert first is not None
    assert second is not None
    assert first.sketches == second.sketches
    assert_pooled(first, mine, mine, mine, theirs, rtol=1e-6)


def attached(collective: Collective, by_rank: list[dict[str, Any]]) -> Any:
    arguments = {"url": "memory:", "job": "run", **by_rank[collective.rank]}
    try:
        with trimtab.attach(collective=collective, **arguments) as emitter:
            return emitter.attempt, emitter.rank, type(emitter.transport)
    except ValueError as error:
        return str(error)


def test_the_attempt_is_rank_0s_and_it_alone_has_a_transport() -> None:
    first, second = run_threads(2, attached, [{"attempt": 7}, {"attempt": 9, "rank": 1}])
    assert first == (7, 0, MemoryTransport)
    assert second == (7, 1, SilentTransport)


@pytest.mark.parametrize(
    ("by_rank", "told"),
    [
        ([{"url": "ftp://host"}, {}], ["url: 'ftp://host' starts", "collective: 1 of 2 ranks could not attach"]),
        ([{}, {"rank": 3}], ["collective: 1 of 2 ranks could not", "rank: 3, but the collective says 1"]),
        ([{"job": "no spaces"}] * 2, ["job: 'no spaces' must be", "job: 'no spaces' must be"]),
        ([{"attempt": -1}] * 2, ["attempt: -1 is negative", "attempt: -1 is negative"]),
    ],
)
def test_where_one_rank_cannot_attach_none_does(by_rank: list[dict[str, Any]], told: list[str]) -> None:
    for answer, start in zip(run_threads(2, attached, by_rank), told, strict=True):
        assert str(answer).startswith(start)


def test_a_run_of_one_rank_is_told_apart_by_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    (alone,) = run_threads(1, play, [Step(command=command(1, clip_low=0.1), batches={0: [tensors()]}), Step()])
    assert [item.ranks for item in alone.sent] == [1, 1]
    assert [item.clip_low for item in alone.controls] == [0.1, 0.1]
    assert caplog.records == []
