"""The agent inside the training process."""

from pathlib import Path

import pytest
from agent_runs import Plant

import trimtab
from trimtab.agent.state import Mode
from trimtab.api.local import LocalTransport
from trimtab.api.refold import refolded
from trimtab.api.restore import config_of
from trimtab.api.service import Service
from trimtab.hooks.layout import Report
from trimtab.hooks.records import RecordError
from trimtab.storage.engine import StorageError


def run(path: Path, steps: int = 30) -> tuple[Plant, LocalTransport]:
    Service.open(path).register("run", config=None, mode=Mode.AUTO, issuer="me", reason="test")
    plant, transport = Plant(seed=2, noisy_from=4), LocalTransport(path, "run")
    for _ in range(steps):
        transport.send(Report(plant.advance()))
        plant.obey(transport.command())
    return plant, transport


def test_the_command_is_there_when_send_returns_and_two_runs_are_the_same(tmp_path: Path) -> None:
    (first, one), (second, two) = run(tmp_path / "1.db"), run(tmp_path / "2.db")
    assert first.overrides == second.overrides == {"ratio_reference": "recomputed", "centering": True}
    recorded = [transport.service.store.recorded("run") for transport in (one, two)]
    assert recorded[0].state == recorded[1].state
    assert recorded[0].events == recorded[1].events
    assert [entry.payload for entry in recorded[0].entries] == [entry.payload for entry in recorded[1].entries]


def test_what_was_decided_is_reproduced_exactly(tmp_path: Path) -> None:
    _, transport = run(tmp_path / "agent.db")
    recorded = transport.service.store.recorded("run")
    assert len(recorded.events) > 4
    assert refolded(recorded, config_of("run", recorded.config)).difference is None


def test_what_the_store_refuses_is_counted_and_not_raised(tmp_path: Path) -> None:
    _, transport = run(tmp_path / "agent.db", steps=1)
    transport.send(Report(Plant(seed=9).advance()))
    assert transport.dropped == 1
    (tmp_path / "agent.db").unlink()
    transport.close(0.0)
    transport.send(Report(Plant(seed=9).advance()))
    assert transport.dropped == 2


def test_mistakes_are_told_before_step_0(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="does not exist"):
        LocalTransport(tmp_path / "no" / "agent.db", "run")
    with pytest.raises(RecordError, match="job: 'a b'"):
        LocalTransport(tmp_path / "agent.db", "a b")


def test_attach_takes_a_local_address(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with trimtab.attach(f"local:{path}", job="attached", attempt=1) as emitter:
        for step in range(3):
            emitter.end_step(step=step, scalars={"reward_mean": 0.5})
    assert [entry.step for entry in Service.open(path).store.recorded("attached").entries] == [0, 1, 2]
