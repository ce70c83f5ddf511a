"""The emitter: what it reports, what it applies, and that it never raises into training."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trimtab
from trimtab.hooks.accumulate import Drained
from trimtab.hooks.controls import Capabilities, Controls, Liveness
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.layout import SIZE
from trimtab.hooks.records import Command, RecordError, SignTotals, StepSummary
from trimtab.hooks.transport.memory import MemoryTransport

CAN = Capabilities(controls=dict.fromkeys(("clip_low", "centering", "ratio_reference"), Liveness.LIVE), sampler_head=4)


def command(generation: int, **overrides: Any) -> Command:
    return Command(job="run", attempt=1, generation=generation, overrides=overrides, reason="", issuer="agent")


def tensors(tokens: int = 4) -> dict[str, Any]:
    logprobs = np.full((2, tokens), -1.0, dtype=np.float32)
    return {
        "train_logprobs": logprobs,
        "old_logprobs": logprobs - np.float32(0.125),
        "rollout_logprobs": logprobs - np.float32(0.5),
        "advantages": np.float32([1.0, -1.0]),
        "loss_mask": np.ones((2, tokens)),
        "entropy": np.full((2, tokens), 0.5, dtype=np.float32),
    }


@pytest.fixture
def transport() -> MemoryTransport:
    return MemoryTransport()


@pytest.fixture
def emitter(transport: MemoryTransport) -> Iterator[Emitter]:
    with Emitter(transport, job="run", attempt=1, capabilities=CAN, rank=3) as made:
        yield made


def test_a_step_is_reported_with_what_was_in_effect_during_it(emitter: Emitter, transport: MemoryTransport) -> None:
    emitter.observe(**tensors())
    emitter.observe(**tensors())
    transport.set_command(command(2, clip_low=0.1))
    returned = emitter.end_step(step=7, scalars={"loss": 0.5, "reward_mean": None}, policy_version=6, staleness=1.5)
    assert returned == emitter.controls == Controls(clip_low=0.1)
    emitter.end_step(step=8)
    first, second = transport.sent
    assert (first.job, first.attempt, first.step, first.rank) == ("run", 1, 7, 3)
    assert (first.scalars, first.policy_version, first.staleness) == ({"loss": 0.5}, 6, 1.5)
    assert (first.applied, first.generation, first.capabilities) == (Controls(), 0, CAN)
    assert (second.applied, second.generation) == (Controls(clip_low=0.1), 2)
    assert first.positive == SignTotals(tokens=8, advantage_abs=8.0, entropy_tokens=8, entropy=4.0, entropy_sq=2.0)
    assert first.sketches["update"].positive.sum("log_ratio") == 1.0
    assert first.sketches["mismatch"].negative.sum("log_ratio") == 3.0
    assert (second.tokens, second.sketches) == (0, {})


def test_the_update_sketch_follows_the_ratios_reference(emitter: Emitter, transport: MemoryTransport) -> None:
    transport.set_command(command(1, ratio_reference="sampler"))
    for step in range(2):
        emitter.observe(**tensors())
        emitter.end_step(step=step)
    assert [item.sketches["update"].positive.sum("log_ratio") for item in transport.sent] == [0.5, 2.0]


def test_lifting_an_override_returns_to_the_runs_own_value_as_it_is_now(
    emitter: Emitter, transport: MemoryTransport
) -> None:
    transport.set_command(command(1, clip_low=0.1))
    assert emitter.end_step(step=0, base=Controls(clip_low=0.4, lr_scale=0.5)) == Controls(clip_low=0.1, lr_scale=0.5)
    transport.set_command(command(2))
    assert emitter.end_step(step=1) == Controls(clip_low=0.4, lr_scale=0.5)


def test_refusals_are_reported_until_the_next_generation(emitter: Emitter, transport: MemoryTransport) -> None:
    transport.set_command(command(1, clip_low=5.0, centering=True))
    assert emitter.end_step(step=0) == Controls(centering=True)
    emitter.end_step(step=1)
    transport.set_command(command(2, centering=True))
    emitter.end_step(step=2)
    emitter.end_step(step=3)
    assert [len(item.refusals) for item in transport.sent] == [0, 1, 1, 0]
    assert transport.sent[1].refusals == ("clip_low: 5.0 is not a number in [0, 1]",)


def test_an_agent_in_the_process_answers_at_once() -> None:
    transport = MemoryTransport(lambda summary: command(summary.step + 1, clip_low=0.1 * (summary.step + 1)))
    emitter = Emitter(transport, job="run", attempt=1, capabilities=CAN)
    assert [emitter.end_step(step=step).clip_low for step in range(3)] == [0.1, 0.2, pytest.approx(0.3)]


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


def test_one_scalar_that_is_no_number_is_left_out_alone(emitter: Emitter, transport: MemoryTransport) -> None:
    emitter.end_step(step=0, scalars={"loss": "high", "reward_mean": np.float32(0.5), "grad_norm": float("nan")})  # type: ignore[dict-item]
    assert str(transport.sent[0].scalars) == "{'reward_mean': 0.5, 'grad_norm': nan}"
    assert emitter.failures == 1


class Broken(MemoryTransport):
    """A transport with a bug."""

    def send(self, summary: StepSummary) -> None:
        raise RuntimeError(f"step {summary.step}")


def test_three_failing_steps_in_a_row_stop_it_and_it_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    emitter = Emitter(Broken(), job="run", attempt=1)
    for step in range(10):
        assert emitter.end_step(step=step) == Controls()
    emitter.observe()
    assert emitter.failures == 3
    assert [record.getMessage().split(": ")[1][:7] for record in caplog.records] == ["end_ste", "stopped"]
    emitter.close()


def test_stopping_keeps_the_controls_and_still_takes_the_runs_own(caplog: pytest.LogCaptureFixture) -> None:
    transport = MemoryTransport()
    emitter = Emitter(transport, job="run", attempt=1, capabilities=CAN)
    transport.set_command(command(1, clip_low=0.1))
    emitter.end_step(step=0)
    for step in range(1, 4):
        emitter.end_step(step=-step)
    assert emitter.end_step(step=5, base=Controls(clip_low=0.3, lr_scale=2.0)) == Controls(clip_low=0.1, lr_scale=2.0)
    assert len(transport.sent) == 1
    assert "step: -1 is negative" in caplog.text


def test_failures_that_are_not_in_a_row_do_not_stop_it(emitter: Emitter, transport: MemoryTransport) -> None:
    for step in range(12):
        if step % 3:
            emitter.observe()
        emitter.end_step(step=step)
    assert (emitter.failures, len(transport.sent)) == (8, 12)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_only_a_wish_to_stop_passes(interrupt: type[BaseException]) -> None:
    class Interrupted(MemoryTransport):
        def send(self, summary: StepSummary) -> None:
            raise interrupt(summary.step)

    with pytest.raises(interrupt):
        Emitter(Interrupted(), job="run", attempt=1).end_step(step=0)


def test_the_environment_switches_it_off_and_on(
    emitter: Emitter, transport: MemoryTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport.set_command(command(1, clip_low=0.1))
    assert emitter.end_step(step=0).clip_low == 0.1
    monkeypatch.setenv("TRIMTAB_DISABLE", "1")
    emitter.observe(**tensors())
    assert emitter.end_step(step=1) == Controls()
    emitter.observe(**tensors())
    assert emitter.end_step(step=2) == Controls()
    monkeypatch.setenv("TRIMTAB_DISABLE", "0")
    assert emitter.end_step(step=3).clip_low == 0.1
    assert [(item.step, item.generation, item.tokens) for item in transport.sent] == [(0, 0, 0), (3, 0, 0)]


def test_a_file_switches_it_off_with_the_agent_dead(
    emitter: Emitter, transport: MemoryTransport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRIMTAB_KILL_FILE", str(tmp_path / "kill"))
    transport.set_command(command(1, clip_low=0.1))
    assert emitter.end_step(step=0).clip_low == 0.1
    (tmp_path / "kill").touch()
    assert emitter.end_step(step=1) == Controls()
    (tmp_path / "kill").unlink()
    assert emitter.end_step(step=2).clip_low == 0.1
    assert [item.step for item in transport.sent] == [0, 2]


def test_vectors_that_are_on_their_way_are_sent_a_step_later_and_in_order(transport: MemoryTransport) -> None:
    """As on an accelerator: a copy that has not arrived is not waited for before the next step has ended."""
    arrived: list[bool] = []
    waited: list[int] = []

    class Slow:
        def __init__(self) -> None:
            self.drains = 0

        def drain(self) -> Drained:
            number = self.drains
            self.drains += 1
            arrived.append(False)

            def read() -> np.ndarray:
                if not arrived[number]:
                    waited.append(number)
                return np.zeros(SIZE)

            return Drained(lambda: arrived[number], read)

    emitter = Emitter(transport, job="run", attempt=1)
    emitter._accumulator = Slow()  # type: ignore[assignment]
    emitter.end_step(step=0)
    assert transport.sent == []
    emitter.end_step(step=1)
    assert ([item.step for item in transport.sent], waited) == ([0], [0])
    arrived[1] = True
    emitter.end_step(step=2)
    assert ([item.step for item in transport.sent], waited) == ([0, 1], [0])
    emitter.close()
    assert [item.step for item in transport.sent] == [0, 1, 2]


def test_after_closing_nothing_happens(transport: MemoryTransport) -> None:
    emitter = Emitter(transport, job="run", attempt=1)
    emitter.end_step(step=0)
    emitter.close()
    emitter.close()
    emitter.observe(**tensors())
    assert emitter.end_step(step=1) == Controls()
    assert ([item.step for item in transport.sent], emitter.failures) == ([0], 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"job": "no spaces"}, "job: 'no spaces' must be"),
        ({"job": "run", "attempt": -1}, "attempt: -1 is negative"),
        ({"job": "run", "rank": -1}, "rank: -1 is negative"),
        ({"job": "run", "url": "ftp://host"}, "url: 'ftp://host' starts with none of http:"),
        ({"job": "run", "url": "file:"}, "url: 'file:' names no path"),
        ({"job": "run", "url": "http:///x"}, "url: 'http:///x' has no host"),
    ],
)
def test_what_cannot_be_fails_before_the_first_step(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trimtab.attach(**{"url": "memory:", **arguments})


def test_attach_numbers_attempts_by_the_clock_and_lets_a_number_be_given() -> None:
    with trimtab.attach("memory:", job="run") as first, trimtab.attach("memory:", job="run", attempt=4) as second:
        assert first.attempt > 1_700_000_000
        assert second.attempt == 4


def test_record_errors_are_value_errors() -> None:
    assert issubclass(RecordError, ValueError)
