"""A trainer waits for as long as it is told to, and never for good."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hook_runs import CAN, command, tensors
from rank_threads import run_threads

import trimtab
from trimtab.hooks.collective import Collective
from trimtab.hooks.controls import Controls, Liveness
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.layout import Report
from trimtab.hooks.pause import Patience, PauseError
from trimtab.hooks.rank_emitter import RankEmitter
from trimtab.hooks.records import Command, StepSummary
from trimtab.hooks.transport.memory import MemoryTransport
from trimtab.hooks.transport.silent import SilentTransport

WAITS = replace(CAN, controls=CAN.controls | {"paused": Liveness.LIVE})
QUICK = Patience(every=0.001, tries=3)
both = pytest.mark.parametrize("late", [0, 1])


class Agent:
    """Says `script[i]` to the i-th question, and nothing more."""

    def __init__(self, *script: Command | Callable[[], None] | None) -> None:
        self.script = list(script)
        self.heard: list[int] = []

    def __call__(self, summary: StepSummary) -> Command | None:
        self.heard.append(summary.step)
        said = self.script.pop(0) if self.script else None
        return said() if callable(said) else said


class Away(MemoryTransport):
    """Its agent never answers a question."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked = 0

    def ask(self, report: Report, timeout: float) -> bool:
        assert (report.summary.step, timeout) == (0, QUICK.every)
        self.asked += 1
        return False


def paused(transport: MemoryTransport, patience: Patience = QUICK, **arguments: Any) -> Emitter:
    """An emitter that is told to pause after step 0."""
    emitter = Emitter(transport, job="run", attempt=1, capabilities=WAITS, patience=patience, **arguments)
    if not transport.handler:
        transport.set_command(command(1, paused=True, clip_low=0.1))
    assert emitter.end_step(step=0) == Controls(paused=True, clip_low=0.1)
    return emitter


def test_it_waits_until_the_agent_says_so_and_the_same_summary_asks() -> None:
    agent = Agent(command(1, paused=True, clip_low=0.1), None, None, None, command(2, clip_low=0.3))
    transport = MemoryTransport(agent)
    emitter = paused(transport)
    assert emitter.wait_while_paused() == emitter.controls == Controls(clip_low=0.3)
    assert agent.heard == [0] * 5
    assert [item.step for item in transport.sent] == [0]
    assert emitter.wait_while_paused() == Controls(clip_low=0.3)
    assert (emitter.generation, emitter.dropped, emitter.failures, len(agent.heard)) == (2, 0, 0, 5)


def test_a_run_that_is_not_paused_does_not_wait_and_asks_nobody() -> None:
    agent = Agent()
    with Emitter(MemoryTransport(agent), job="run", attempt=1, capabilities=WAITS) as emitter:
        emitter.end_step(step=0)
        assert emitter.wait_while_paused() == Controls()
    assert agent.heard == [0]


def test_a_trainer_that_does_not_say_it_waits_is_never_paused() -> None:
    transport = MemoryTransport()
    transport.set_command(command(1, paused=True))
    with Emitter(transport, job="run", attempt=1, capabilities=CAN) as emitter:
        assert emitter.end_step(step=0) == emitter.wait_while_paused() == Controls()
        emitter.end_step(step=1)
    assert transport.sent[-1].refusals == ("paused: absent in this trainer",)


def test_an_end_of_a_step_never_waits() -> None:
    emitter = paused(MemoryTransport())
    assert [emitter.end_step(step=step).paused for step in (1, 2)] == [True, True]


def test_an_absent_agent_stops_no_run(caplog: pytest.LogCaptureFixture) -> None:
    transport = Away()
    emitter = paused(transport)
    assert emitter.wait_while_paused() == Controls(clip_low=0.1)
    assert transport.asked == 3
    emitter.end_step(step=1)
    refusal = "paused: over, since the agent did not answer 3 times in a row"
    assert (transport.sent[-1].refusals, transport.sent[-1].overrides) == ((refusal,), {"clip_low": 0.1})
    assert [one.getMessage() for one in caplog.records] == [
        "trimtab (job run): the pause is over, since the agent did not answer 3 times in a row"
    ]


def test_a_wait_has_an_end_though_the_agent_is_there() -> None:
    agent = Agent(command(1, paused=True, clip_low=0.1))
    emitter = paused(MemoryTransport(agent), Patience(seconds=0.05, every=0.001, tries=3))
    assert emitter.wait_while_paused() == Controls(clip_low=0.1)
    assert len(agent.heard) > 3


def test_a_pause_that_had_its_time_is_refused_until_it_has_been_lifted() -> None:
    transport = Away()
    emitter = paused(transport)
    emitter.wait_while_paused()
    transport.set_command(command(2, paused=True, clip_low=0.2))
    assert emitter.end_step(step=1) == emitter.wait_while_paused() == Controls(clip_low=0.2)
    assert emitter.end_step(step=2) == Controls(clip_low=0.2)
    assert transport.sent[-1].refusals == ("paused: over, since the agent did not answer 3 times in a row",)
    transport.set_command(command(3, clip_low=0.2))
    assert emitter.end_step(step=3) == Controls(clip_low=0.2)
    transport.set_command(command(4, paused=True))
    assert emitter.end_step(step=4) == Controls(paused=True)


def test_a_kill_file_ends_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRIMTAB_KILL_FILE", str(tmp_path / "kill"))
    emitter = paused(MemoryTransport(Agent(command(1, paused=True, clip_low=0.1), None, (tmp_path / "kill").touch)))
    assert emitter.wait_while_paused() == Controls()
    assert (emitter.overrides, emitter.generation) == ({}, 0)


def test_a_fault_while_waiting_ends_it() -> None:
    def broken() -> None:
        raise RuntimeError("no")

    emitter = paused(MemoryTransport(Agent(command(1, paused=True, clip_low=0.1), broken)))
    assert emitter.wait_while_paused() == Controls(clip_low=0.1)
    assert emitter.failures == 1


def test_a_wish_to_stop_comes_through() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    emitter = paused(MemoryTransport(Agent(command(1, paused=True, clip_low=0.1), stop)))
    with pytest.raises(KeyboardInterrupt):
        emitter.wait_while_paused()


def test_nothing_is_asked_in_a_file_and_a_resumed_pause_ends(tmp_path: Path) -> None:
    with trimtab.attach(f"file:{tmp_path}", job="run", attempt=2, capabilities=WAITS, patience=QUICK) as emitter:
        emitter.resume(base=Controls(), overrides={"paused": True}, generation=4)
        emitter.end_step(step=3)
        assert emitter.wait_while_paused() == Controls()


def test_a_signal_ends_a_process_that_waits() -> None:
    """With the default for SIGTERM there is no more to it than that nothing holds the process up."""
    program = """
        import trimtab
        from trimtab.hooks.controls import Capabilities, Controls, Liveness
        from trimtab.hooks.records import Command

        can = Capabilities(controls={"paused": Liveness.LIVE})
        emitter = trimtab.attach("memory:", job="run", attempt=1, capabilities=can)
        emitter.transport.set_command(
            Command(job="run", attempt=1, generation=1, overrides={"paused": True}, reason="", issuer="agent")
        )
        emitter.end_step(step=0)
        print("waiting", flush=True)
        emitter.wait_while_paused()
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == "waiting\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM


def waiting(collective: Collective, agent: Agent, transport: Any = MemoryTransport) -> tuple[Any, ...]:
    """Six steps of one rank, after each of which it waits."""
    chosen = transport(agent) if collective.rank == 0 else SilentTransport()
    run = {"job": "run", "attempt": 1, "capabilities": WAITS, "patience": QUICK}
    with RankEmitter(chosen, collective, **run) as emitter:
        controls = []
        for step in range(6):
            emitter.observe(**tensors())
            emitter.end_step(step=step)
            controls.append(emitter.wait_while_paused())
    return controls, emitter.generation, emitter.failures


@both
def test_every_rank_waits_the_same(late: int) -> None:
    agent = Agent(command(1, paused=True), None, None, command(2, clip_low=0.3))
    first, second = run_threads(2, waiting, agent, late=late)
    assert first == second
    assert first[0][-1] == Controls(clip_low=0.3)
    assert first[1:] == (2, 0)


@both
def test_every_rank_goes_on_where_the_agent_is_away(late: int) -> None:
    class Gone(Away):
        def ask(self, *_: Any) -> bool:
            return False

    first, second = run_threads(2, waiting, Agent(command(1, paused=True, clip_low=0.1)), Gone, late=late)
    assert first == second
    assert first[0][-1] == Controls(clip_low=0.1)


@both
def test_every_rank_goes_on_where_rank_0_fails(late: int) -> None:
    class Faulty(Away):
        def ask(self, *_: Any) -> bool:
            raise RuntimeError("no")

    first, second = run_threads(2, waiting, Agent(command(1, paused=True, clip_low=0.1)), Faulty, late=late)
    assert first[:2] == second[:2]
    assert (first[0][-1], first[2], second[2]) == (Controls(clip_low=0.1), 1, 0)


@both
def test_a_kill_file_of_rank_0_ends_it_everywhere(late: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRIMTAB_KILL_FILE", str(tmp_path / "kill"))
    agent = Agent(command(1, paused=True), None, (tmp_path / "kill").touch)
    first, second = run_threads(2, waiting, agent, late=late)
    assert first == second == ([Controls()] * 6, 0, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seconds": math.inf}, "patience.seconds: inf is no finite number of seconds above 0"),
        ({"seconds": 0.0}, "patience.seconds: 0.0 is no finite number of seconds above 0"),
        ({"every": math.nan}, "patience.every: nan is no finite number of seconds above 0"),
        ({"tries": 0}, "patience.tries: 0 is fewer than one"),
    ],
)
def test_a_patience_without_an_end_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(PauseError) as told:
        Patience(**change)
    assert str(told.value) == message
