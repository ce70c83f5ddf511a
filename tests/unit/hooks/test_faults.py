"""Nothing raises into training; what cannot be taken is left out alone, and what is lost is counted."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from hook_runs import CAN, command, tensors

from trimtab.hooks.controls import Controls
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.layout import Report
from trimtab.hooks.transport.memory import MemoryTransport


@pytest.mark.parametrize(
    "garbage",
    [
        {},
        {"train_logprobs": None, "advantages": None, "loss_mask": None},
        {"train_logprobs": "high", "advantages": [1.0], "loss_mask": [1]},
        {"train_logprobs": object(), "advantages": object(), "loss_mask": object()},
        {"train_logprobs": [[1.0], [1.0, 2.0]], "advantages": [1.0], "loss_mask": [[1]]},
        {**tensors(), "mood": 1},
        {**tensors(), "old_logprobs": np.zeros((9, 9))},
    ],
)
def test_garbage_is_counted_and_training_goes_on(
    emitter: Emitter, transport: MemoryTransport, caplog: pytest.LogCaptureFixture, garbage: dict[str, Any]
) -> None:
    for _ in range(5):
        emitter.observe(**garbage)
    emitter.observe(**tensors())
    emitter.end_step(step=0)
    assert emitter.failures == 5
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert transport.sent[0].positive.tokens == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("loss", "high"),
        ("loss", object()),
        ("garbage_fraction", 1.5),
        ("garbage_fraction", 40),
        ("zero_variance_fraction", np.float32(-0.1)),
        ("length_mean", 10**400),
        (5, 0.5),
    ],
)
def test_one_scalar_that_cannot_be_is_left_out_alone_however_often_it_comes(
    emitter: Emitter, transport: MemoryTransport, caplog: pytest.LogCaptureFixture, name: Any, value: Any
) -> None:
    for step in range(6):
        emitter.end_step(step=step, scalars={name: value, "reward_mean": np.float32(0.5), "grad_norm": float("nan")})
    assert [str(item.scalars) for item in transport.sent] == ["{'reward_mean': 0.5, 'grad_norm': nan}"] * 6
    assert (emitter.failures, emitter.dropped) == (6, 0)
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == [f"scalars.{name}"]


def test_a_fraction_that_is_not_finite_is_data(emitter: Emitter, transport: MemoryTransport) -> None:
    emitter.end_step(step=0, scalars={"garbage_fraction": float("inf")})
    assert transport.sent[0].scalars == {"garbage_fraction": float("inf")}


@pytest.mark.parametrize(
    "field",
    [
        {"staleness": -1.0},
        {"staleness": float("nan")},
        {"staleness": "old"},
        {"policy_version": "first"},
        {"pass_index": -1},
        {"pass_index": "second"},
    ],
)
def test_a_field_that_cannot_be_is_left_out_alone(
    emitter: Emitter, transport: MemoryTransport, field: dict[str, Any]
) -> None:
    emitter.end_step(step=0, scalars={"loss": 0.5}, **field)
    (sent,) = transport.sent
    assert (sent.staleness, sent.policy_version, sent.pass_index, sent.scalars) == (None, None, 0, {"loss": 0.5})
    assert (emitter.failures, emitter.dropped) == (1, 0)


def test_a_step_that_cannot_be_is_lost_alone_and_the_next_summary_says_so(
    emitter: Emitter, transport: MemoryTransport
) -> None:
    for step in (0, -1, -2, -3, -4, "five", 6):
        emitter.observe(**tensors())
        emitter.end_step(step=step)  # type: ignore[arg-type]
    assert [(item.step, item.dropped_total, item.positive.tokens) for item in transport.sent] == [(0, 0, 4), (6, 5, 4)]
    assert (emitter.failures, emitter.dropped) == (5, 5)


def test_own_controls_that_are_none_change_nothing(emitter: Emitter) -> None:
    assert emitter.end_step(step=0, base=Controls(clip_low=0.3)) == Controls(clip_low=0.3)
    assert emitter.end_step(step=1, base="none") == Controls(clip_low=0.3)  # type: ignore[arg-type]
    assert emitter.end_step(step=2) == Controls(clip_low=0.3)
    assert emitter.failures == 1


class Broken(MemoryTransport):
    """A transport with a bug, as long as `broken` says so."""

    broken = True

    def send(self, report: Report) -> None:
        if self.broken:
            raise RuntimeError(f"step {report.summary.step}")
        super().send(report)


def test_three_steps_in_a_row_without_a_report_stop_it_and_it_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    emitter = Emitter(Broken(), job="run", attempt=1)
    for step in range(10):
        assert emitter.end_step(step=step) == Controls()
    emitter.observe()
    assert (emitter.failures, emitter.dropped) == (3, 10)
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == ["end_step", "stopped"]
    emitter.close()


def test_stopping_keeps_the_controls_and_still_takes_the_runs_own() -> None:
    transport = Broken()
    transport.broken = False
    emitter = Emitter(transport, job="run", attempt=1, capabilities=CAN)
    transport.set_command(command(1, clip_low=0.1))
    emitter.end_step(step=0)
    transport.broken = True
    for step in range(1, 4):
        emitter.end_step(step=step)
    assert emitter.end_step(step=5, base=Controls(clip_low=0.3, lr_scale=2.0)) == Controls(clip_low=0.1, lr_scale=2.0)
    assert ([item.step for item in transport.sent], emitter.dropped) == ([0], 4)


def test_failures_that_are_not_in_a_row_do_not_stop_it() -> None:
    transport = Broken()
    emitter = Emitter(transport, job="run", attempt=1)
    for step in range(12):
        transport.broken = step % 3 != 0
        emitter.end_step(step=step)
    assert ([item.step for item in transport.sent], [item.dropped_total for item in transport.sent]) == (
        [0, 3, 6, 9],
        [0, 2, 4, 6],
    )
    assert (emitter.failures, emitter.dropped) == (8, 8)


def test_tensors_that_can_never_be_measured_do_not_stop_it(emitter: Emitter, transport: MemoryTransport) -> None:
    for step in range(12):
        emitter.observe()
        emitter.end_step(step=step)
    assert (emitter.failures, emitter.dropped, len(transport.sent)) == (12, 0, 12)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_only_a_wish_to_stop_passes(interrupt: type[BaseException]) -> None:
    class Interrupted(MemoryTransport):
        def send(self, report: Report) -> None:
            raise interrupt(report.summary.step)

    with pytest.raises(interrupt):
        Emitter(Interrupted(), job="run", attempt=1).end_step(step=0)
