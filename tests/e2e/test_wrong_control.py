"""A person forces ten times the learning rate on a healthy run: the agent takes it back, and the run with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.agent.config import AgentConfig
from trimtab.agent.state import EventKind, Mode, OperatorAction, OperatorVerb
from trimtab.api.lab.cells import load_lab
from trimtab.api.service import Service
from trimtab.trainer.run import execute
from trimtab.trainer.step_record import StepRecord

LAB = Path(__file__).resolve().parents[2] / "configs" / "lab" / "healthy.toml"
FORCED_AT = 40


@pytest.mark.slow
def test_ten_times_the_learning_rate_is_taken_back_and_the_run_restored(tmp_path: Path) -> None:
    config = next(cell.config for cell in load_lab(LAB).cells if cell.name == "bf16/agent/s0")
    config = config.model_copy(update={"steps": 90})
    ledger = tmp_path / "ledger.db"
    service = Service.open(ledger)
    service.register("run", config=AgentConfig(), mode=Mode.AUTO, issuer="ada", reason="on duty")
    rewards: list[float] = []

    def on_step(record: StepRecord) -> None:
        rewards.append(record.reward_mean)
        if (record.attempt, record.step) == (0, FORCED_AT):
            forced = OperatorAction(
                job="run",
                verb=OperatorVerb.PATCH_CONTROLS,
                issuer="ada",
                reason="sure of it",
                overrides={"lr_scale": 10.0},
            )
            service.operate(forced)

    try:
        result = execute(config, url=f"local:{ledger}", job="run", out=tmp_path, attempt=0, on_step=on_step)
        state, events = service.state("run"), list(service.store.events("run"))
    finally:
        service.close()
    undone = next(event for event in events if event.kind == EventKind.ROLLED_BACK)
    assert FORCED_AT < undone.step <= FORCED_AT + 20
    assert min(rewards) < 0.3
    assert state.person_overrides == {}
    assert [rung.remedy for rung in state.ladder.rungs] == ["restore_checkpoint"]
    assert result.reward_eval_bf16 is not None
    assert result.reward_eval_bf16 > 0.95
