"""The pages of the adapters say what the adapters do, and their lines of code run."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rigs import RIGS
from rigs.areal import PPOActor
from rigs.openrlhf import ActorPPOTrainer
from rigs.prime_rl import PrimeRlRig

from trimtab.hooks.controls import CONTROL_NAMES, Liveness

PAGES = Path(__file__).resolve().parents[3] / "docs" / "attach"
ADAPTERS = sorted(set(RIGS) - {"miles", "trl"})
ROW = re.compile(r"^\| `(\w+)` \| (LIVE|NEXT_ROLLOUT|RESTART|ABSENT) \| .+ \|$", re.MULTILINE)
CODE = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def adapter(name: str) -> Any:
    return importlib.import_module(f"trimtab.hooks.{name}")


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_table_is_the_adapters(name: str) -> None:
    rows = ROW.findall((PAGES / f"{name}.md").read_text())
    assert {control: Liveness[when] for control, when in rows} == adapter(name).CONTROL_TABLE
    assert len(rows) == len(adapter(name).CONTROL_TABLE)
    assert set(adapter(name).CONTROL_TABLE) <= set(CONTROL_NAMES)


@pytest.mark.parametrize("name", RIGS)
def test_an_attached_trainer_can_do_no_more_than_its_table(name: str) -> None:
    rig = RIGS[name]()
    rig.attach()
    rig.step()
    assert rig.attachment is not None
    can = rig.attachment.emitter.capabilities
    table = adapter({"miles": "slime"}.get(name, name)).CONTROL_TABLE
    assert set(can.controls) <= set(table)
    for control, when in can.controls.items():
        assert when in (table[control], Liveness.RESTART)
        assert when is not Liveness.RESTART or can.reasons[control]
    assert "the rollouts record no sampler head" in str(can.refusal("centering", True))
    rig.close()


@pytest.mark.parametrize("name", ADAPTERS)
def test_it_is_imported_without_its_framework_and_without_torch(name: str) -> None:
    absent = "import sys; sys.modules.update(dict.fromkeys(['torch', 'ray', 'omegaconf', 'trl', 'verl', 'slime']))"
    subprocess.run([sys.executable, "-c", f"{absent}; import trimtab.hooks.{name}"], check=True)


def test_every_page_is_in_the_index() -> None:
    index = (PAGES / "README.md").read_text()
    assert [name for name in ADAPTERS if f"({name}.md)" not in index] == []


@pytest.mark.parametrize("name", ["verl", "openrlhf", "skyrl", "nemo_rl", "areal"])
def test_the_lines_that_attach_it_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIMTAB_URL", raising=False)
    rig = RIGS[name]()
    given: dict[str, Any] = {}
    if name == "verl":
        registry: dict[str, type] = {}
        rig.install("verl.trainer.ppo.v1.trainer_base", TRAINER_REGISTRY=registry)
    elif name == "openrlhf":
        made = type("Trainer", (ActorPPOTrainer,), {})
        rig.install("openrlhf.trainer.ray.ppo_actor", ActorPPOTrainer=made)
    elif name == "areal":
        rig.install("areal.trainer.ppo.actor", PPOActor=type("Actor", (PPOActor,), {}))
    elif name == "nemo_rl":
        given = {"policy": rig.policy, "loss_fn": rig.loss}  # type: ignore[attr-defined]
    (code,) = CODE.findall((PAGES / f"{name}.md").read_text())
    exec(compile(code, f"{name}.md", "exec"), given)
    rig.close()


def test_the_kinds_of_inner_loss_on_the_page_are_those_of_prime_rl() -> None:
    text = (PAGES / "prime_rl.md").read_text()
    assert 'import_path = "trimtab.hooks.prime_rl.loss"' in text
    for inner in ("default", "clipped"):
        rig = PrimeRlRig(inner)
        assert f"`{inner}`" in text
        rig.step()
        rig.close()
