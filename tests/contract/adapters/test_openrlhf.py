"""OpenRLHF: the stand-in, and the released `PolicyLoss` where its source is there."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from real_frameworks import needs, real
from rigs.openrlhf import ActorPPOTrainer, OpenRlhfRig

from trimtab.hooks import openrlhf
from trimtab.hooks.controls import Liveness
from trimtab.hooks.records import Command


@pytest.fixture
def loss_class() -> Iterator[Any]:
    with real("openrlhf.models.loss", absent=["deepspeed"], bare=["openrlhf", "openrlhf.models"]) as module:
        yield module.PolicyLoss


def rig_of(loss: Any) -> OpenRlhfRig:
    rig = OpenRlhfRig()
    rig.trainer.actor_loss_fn = loss
    return rig


@needs("openrlhf")
def test_the_released_loss_is_unchanged_and_its_bounds_are_turned(loss_class: Any) -> None:
    settings = {"is_correction_level": "token", "is_correction_mode": "clip", "is_correction_threshold": [0.5, 5.0]}
    plain, tight, rig = (rig_of(loss_class(**settings)) for _ in range(3))
    expected = [plain.step() for _ in range(3)]
    rig.attach()
    for step in expected:
        got = rig.step()
        assert torch.equal(got.loss, step.loss)
        assert torch.equal(got.gradient, step.gradient)
    assert rig.attachment is not None
    rig.attachment.emitter.transport.set_command(  # type: ignore[attr-defined]
        Command(
            job="run",
            attempt=rig.attachment.emitter.attempt,
            generation=1,
            overrides={
                "clip_high": 0.01,
                "clip_low": 0.01,
                "dual_clip": 1.5,
                "importance": "mis",
                "importance_high": 1.05,
            },
            reason="test",
            issuer="person",
        )
    )
    for _ in range(2):
        rig.step()
    tight.trainer.actor_loss_fn = loss_class(
        clip_eps_low=0.01,
        clip_eps_high=0.01,
        dual_clip=1.5,
        is_correction_level="token",
        is_correction_mode="mask",
        is_correction_threshold=[0.5, 1.05],
    )
    for _ in range(5):
        tight.step()
    got, wanted = rig.step(), tight.step()
    assert torch.equal(got.loss, wanted.loss)
    assert torch.equal(got.gradient, wanted.gradient)
    assert rig.attachment.failures == 0
    rig.close()


@needs("openrlhf")
def test_the_released_loss_has_the_parameters_that_the_adapter_passes(loss_class: Any) -> None:
    names = list(inspect.signature(loss_class.forward).parameters)
    assert names[1:6] == ["log_probs", "old_log_probs", "advantages", "action_mask", "rollout_log_probs"]
    assert set(openrlhf.panel_of(loss_class()).knobs) == set(openrlhf.CONTROL_TABLE)


def test_importance_that_was_off_from_the_start_is_refused_with_the_reason() -> None:
    rig = OpenRlhfRig(level="off")
    refusal = openrlhf.panel_of(rig.trainer.actor_loss_fn).capabilities().refusal("importance", "tis")
    assert refusal == (
        "importance: restart in this trainer: vLLM is asked for its log-probs at the start: "
        "is_correction_level=token, bounds may be wide"
    )


def test_truncation_by_another_statistic_than_the_ratio_of_tokens_is_refused_and_nothing_changes() -> None:
    loss = OpenRlhfRig().trainer.actor_loss_fn
    loss.is_correction_level, loss.is_correction_mode = "seq", "mask"
    panel = openrlhf.panel_of(loss)
    refused = panel.turn({"importance": "tis"})
    assert [name for name, _ in refused] == ["importance"]
    assert (loss.is_correction_level, loss.is_correction_mode) == ("seq", "mask")


def test_every_trainer_made_after_the_patch_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trainer(ActorPPOTrainer):
        pass

    monkeypatch.setenv("TRIMTAB_URL", "memory:")
    monkeypatch.setenv("TRIMTAB_JOB", "run")
    openrlhf._ATTACHED.clear()
    openrlhf.patch(Trainer)
    openrlhf.patch(Trainer)
    rig = OpenRlhfRig()
    rig.trainer = Trainer(rig)
    rig.step()
    attachment = openrlhf._ATTACHED.made()
    assert attachment is not None
    assert attachment.emitter.capabilities.controls["clip_low"] is Liveness.NEXT_ROLLOUT
    attachment.detach()
    openrlhf._ATTACHED.clear()


def test_a_step_is_told_whatever_it_returns() -> None:
    rig = OpenRlhfRig()
    inner, results = rig.trainer.ppo_train, [{"policy_loss": "none", "actor_grad_norm": 2.0}, 7, {"policy_loss": 0.5}]

    def ppo_train(kl_ctl: float) -> Any:
        inner(kl_ctl)
        return results.pop(0)

    rig.trainer.ppo_train = ppo_train  # type: ignore[method-assign]
    rig.attach()
    for _ in range(3):
        rig.step()
    assert rig.attachment is not None
    rig.attachment.detach()
    sent = rig.attachment.emitter.transport.sent  # type: ignore[attr-defined]
    assert [(summary.step, summary.scalars) for summary in sent] == [
        (0, {"grad_norm": 2.0}),
        (1, {}),
        (2, {"loss": 0.5}),
    ]
    assert vars(rig.trainer)["ppo_train"] is ppo_train
    rig.close()
