"""A person's switches: with one set the run has its own controls, whatever else there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hook_runs import CAN, command, tensors

from trimtab.hooks.controls import Controls
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.switches import switched_off
from trimtab.hooks.transport.memory import MemoryTransport


@pytest.mark.parametrize(("value", "off"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_the_environment_says_it(value: str, off: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_DISABLE", value)
    assert switched_off() is off


def test_the_environment_switches_it_off_and_on(
    emitter: Emitter, transport: MemoryTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport.set_command(command(1, clip_low=0.1))
    assert emitter.end_step(step=0).clip_low == 0.1
    monkeypatch.setenv("TRIMTAB_DISABLE", "1")
    emitter.observe(**tensors())
    assert emitter.end_step(step=1) == Controls()
    assert (emitter.overrides, emitter.generation) == ({}, 0)
    emitter.observe(**tensors())
    assert emitter.end_step(step=2) == Controls()
    monkeypatch.setenv("TRIMTAB_DISABLE", "0")
    assert emitter.end_step(step=3) == Controls()
    assert [(item.step, item.generation, item.tokens) for item in transport.sent] == [(0, 0, 0), (3, 0, 0)]


def test_a_file_switches_it_off_and_a_dead_agent_does_not_come_back_with_it(
    emitter: Emitter, transport: MemoryTransport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRIMTAB_KILL_FILE", str(tmp_path / "kill"))
    transport.set_command(command(1, clip_low=0.1))
    assert emitter.end_step(step=0).clip_low == 0.1
    (tmp_path / "kill").touch()
    assert emitter.end_step(step=1) == Controls()
    (tmp_path / "kill").unlink()
    assert [emitter.end_step(step=step) for step in (2, 3)] == [Controls(), Controls()]
    assert [item.step for item in transport.sent] == [0, 2, 3]


@pytest.mark.parametrize("arrives_at", [1, 2])
def test_an_answer_that_came_before_the_switch_was_reset_does_not_count(
    emitter: Emitter, transport: MemoryTransport, monkeypatch: pytest.MonkeyPatch, arrives_at: int
) -> None:
    """It was on its way when a person switched off, and what it wants may have been lifted since."""
    monkeypatch.setenv("TRIMTAB_DISABLE", "1")
    for step in range(3):
        if step == arrives_at:
            transport.set_command(command(7, clip_low=0.1))
        assert emitter.end_step(step=step) == Controls()
    monkeypatch.delenv("TRIMTAB_DISABLE")
    assert emitter.end_step(step=3) == Controls()


def test_what_the_agent_says_after_the_switch_was_reset_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = MemoryTransport(lambda _: command(7, clip_low=0.1))
    with Emitter(transport, job="run", attempt=1, capabilities=CAN) as emitter:
        monkeypatch.setenv("TRIMTAB_DISABLE", "1")
        assert emitter.end_step(step=0) == Controls()
        monkeypatch.delenv("TRIMTAB_DISABLE")
        assert emitter.end_step(step=1) == Controls(clip_low=0.1)


def test_resuming_while_switched_off_brings_no_override_back(
    transport: MemoryTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMTAB_DISABLE", "1")
    own = Controls(clip_high=0.3)
    with Emitter(transport, job="run", attempt=1, capabilities=CAN) as emitter:
        emitter.resume(base=own, overrides={"clip_low": 0.1}, generation=4)
        assert (emitter.controls, emitter.overrides, emitter.generation) == (own, {}, 0)
        assert [emitter.end_step(step=step) for step in range(3)] == [own] * 3
        monkeypatch.delenv("TRIMTAB_DISABLE")
        assert emitter.end_step(step=3) == own
    assert [(item.step, item.applied, item.overrides) for item in transport.sent] == [(3, own, {})]


def test_switching_off_between_making_and_resuming_counts(
    emitter: Emitter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "kill").touch()
    monkeypatch.setenv("TRIMTAB_KILL_FILE", str(tmp_path / "kill"))
    emitter.resume(base=Controls(), overrides={"clip_low": 0.1}, generation=4)
    assert emitter.controls == Controls()


def test_the_runs_own_schedule_goes_on_while_switched_off(
    emitter: Emitter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TRIMTAB_DISABLE", "1")
    assert emitter.end_step(step=0, base=Controls(lr_scale=0.5)) == Controls(lr_scale=0.5)
    assert emitter.end_step(step=1) == Controls(lr_scale=0.5)
    assert (emitter.dropped, len(caplog.records)) == (0, 1)
