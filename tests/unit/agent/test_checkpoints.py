"""Which checkpoints are healthy, which one is kept, and the way back to it."""

from dataclasses import dataclass, replace

from agent_runs import CAPABLE, Plant
from agent_sessions import CENTRED, Session

from trimtab.agent.checkpoints import best
from trimtab.agent.state import EventKind, Mode, OperatorVerb
from trimtab.hooks.controls import Liveness
from trimtab.hooks.records import Command, StepSummary

ABLE = replace(
    CAPABLE, controls=CAPABLE.controls | {"restore": Liveness.LIVE, "pin": Liveness.LIVE, "lr_scale": Liveness.LIVE}
)


@dataclass
class MortalPlant(Plant):
    """Saves a checkpoint every ten steps and keeps six and the pinned one; below a reward of 0.14 it is past saving,
    but for a restore."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.saved: dict[str, float] = {}
        self.restored = ""

    def obey(self, command: Command | None) -> None:
        super().obey(command)
        wanted = self.applied.restore
        if wanted and wanted != self.restored and wanted in self.saved:
            self.reward, self.entropy = self.saved[wanted], 0.37
            self.attempt, self.step = self.attempt + 1, int(wanted.partition(":")[2]) - 1
        self.restored = wanted

    def advance(self) -> StepSummary:
        before = self.reward
        summary = super().advance()
        if before < 0.14:
            self.reward = before
        if self.step % 10 == 9:
            self.saved[f"{self.attempt}:{self.step + 1}"] = self.reward
            kept = [*self.saved][-6:]
            self.saved = {name: r for name, r in self.saved.items() if name in kept or name == self.applied.pin}
        self.capabilities = replace(ABLE, checkpoints=tuple(self.saved))
        return replace(summary, capabilities=self.capabilities)


def late(**settings: object) -> Session:
    """An agent that may act from step 40 on, when the policy is past saving."""
    session = Session(MortalPlant(seed=0, noisy_from=0), Mode.OBSERVE, **settings).run(60)
    assert session.plant.reward < 0.14
    session.tell(OperatorVerb.SET_MODE, mode=Mode.AUTO)
    return session


def test_healthy_are_those_that_were_taken_before_the_harm() -> None:
    session = Session(MortalPlant(seed=0, noisy_from=26), Mode.OBSERVE).run(31)
    assert sorted(session.state.checkpoints) == ["1:10", "1:20", "1:30"]
    assert best(session.state) == "1:30"
    session.run(70)
    assert session.state.checkpoints == {}
    assert len(session.state.judged_checkpoints) == 6


def test_while_something_is_wrong_the_best_is_kept_and_let_go_after() -> None:
    session = Session(MortalPlant(seed=0, noisy_from=26), **{"policy.allow": ["calibrated_clipping"]}).run(100)
    pinned = [event.detail["checkpoint"] for event in session.of(EventKind.CHECKPOINT_PINNED)]
    assert pinned == ["1:20", ""]
    assert "pin" not in session.plant.overrides


def test_a_run_past_saving_goes_back_to_a_healthy_checkpoint_with_the_remedy_on() -> None:
    session = Session(MortalPlant(seed=0, noisy_from=12), Mode.OBSERVE).run(60)
    assert session.plant.reward < 0.14
    assert "1:10" in session.state.checkpoints
    session.tell(OperatorVerb.SET_MODE, mode=Mode.AUTO)
    session.run(160)
    restores = [after["restore"] for _, after in session.changes() if "restore" in after]
    assert restores[0] == "1:10"
    assert session.plant.overrides.items() >= CENTRED.items()
    assert session.plant.attempt == 2
    assert session.plant.reward > 0.9


def test_without_a_healthy_checkpoint_there_is_no_way_back() -> None:
    session = late()
    session.run(60)
    assert session.plant.attempt == 1
    refused = [event.message for event in session.of(EventKind.REFUSED)]
    assert "restore: no checkpoint was taken while the run was healthy" in refused


def test_checkpoints_of_another_name_are_not_gone_back_to() -> None:
    session = Session(Plant(seed=0)).run(10, capabilities=replace(ABLE, checkpoints=("latest", "1:5:ema", "1:5")))
    assert list(session.state.checkpoints) == ["1:5"]


def test_no_pin_where_the_jobs_settings_keep_the_agent_off_it() -> None:
    settings = {"policy.allow": ["calibrated_clipping"], "policy.limits.untouched": ["pin"]}
    session = Session(MortalPlant(seed=0, noisy_from=26), **settings).run(60)
    assert session.of(EventKind.CHECKPOINT_PINNED) == []
