"""SkyRL: the stand-in, and the released callbacks and losses where their source is there."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from real_frameworks import needs, real
from rigs.base import HereCaller
from rigs.skyrl import Registry, SkyRlRig

from trimtab.hooks import skyrl

RAY = all(importlib.util.find_spec(name) for name in ("ray", "omegaconf", "loguru", "jaxtyping"))


@needs("skyrl")
def test_the_released_handler_calls_the_callback() -> None:
    rig = SkyRlRig()
    rig.close()  # its callbacks are the released ones
    bare = ["skyrl", "skyrl.train", "skyrl.train.utils"]
    with real("skyrl.train.utils.callbacks", bare=bare) as callbacks:
        made = skyrl.callback(url="memory:", job="run", caller=lambda _: HereCaller(), registry=rig.registry)
        assert isinstance(made, callbacks.TrainingCallback)
        handler, control = callbacks.CallbackHandler([made]), callbacks.TrainingControl()
        for event, metrics in (("on_train_start", None), ("on_step_end", {"policy_loss": 0.5}), ("on_train_end", None)):
            given = callbacks.CallbackInput(global_step=1, epoch=0, total_steps=9, steps_per_epoch=9, metrics=metrics)
            getattr(handler, event)(rig, given, control)
    assert made.attachment is not None
    assert made.attachment.failures == 0
    assert not made.attachment.attached
    sent = made.attachment.emitter.transport.sent
    assert [(summary.step, summary.scalars) for summary in sent] == [(1, {"loss": 0.5})]


@needs("skyrl")
@pytest.mark.skipif(not RAY, reason="ray and omegaconf are not installed, which SkyRL's losses import")
def test_the_released_losses_are_unchanged_and_measure_where_they_are_sent() -> None:
    bare = ["skyrl", "skyrl.train", "skyrl.backends", "skyrl.backends.skyrl_train", "skyrl.backends.skyrl_train.utils"]
    path = "skyrl.backends.skyrl_train.utils.ppo_utils"
    with real(path, absent=["skyrl.train.config", "cloudpathlib"], bare=bare) as losses:
        registry = losses.PolicyLossRegistry
        inner = registry.get("dual_clip")
        plain, rig = SkyRlRig(), SkyRlRig()
        plain.dispatch.registry = rig.dispatch.registry = rig.registry = registry
        for made in (plain, rig):
            correction = made.dispatch.algorithm.off_policy_correction
            for name in ("sequence_mask_metric", "outlier_token_is_threshold_low", "outlier_token_is_threshold_high"):
                setattr(correction, name, None)
            correction.token_mask_is_threshold_low = correction.token_mask_is_threshold_high = None
        expected = [plain.step() for _ in range(3)]
        rig.attach()
        for step in expected:
            got = rig.step()
            assert torch.equal(got.loss, step.loss)
            assert torch.equal(got.gradient, step.gradient)
        assert rig.attachment is not None
        assert rig.attachment.failures == 0
        assert registry.get("dual_clip") is inner
        assert isinstance(registry.get("trimtab_dual_clip"), skyrl.MeasuredLoss)
        sent = losses.cloudpickle.loads(losses.cloudpickle.dumps(registry.get("trimtab_dual_clip")))
        assert type(sent) is skyrl.MeasuredLoss  # by name, so that its meter is the worker's
        rig.close(), plain.close()


def test_losses_that_measure_are_registered_beside_their_own_and_once() -> None:
    registry = Registry()
    registry.register("regular", lambda *_, **__: ("regular", {}))
    registry.register("cross_entropy", lambda *_, **__: ("cross_entropy", {}))
    own = dict(registry.functions)
    skyrl.register_losses(registry)
    skyrl.register_losses(registry)
    assert list(registry.functions) == ["regular", "cross_entropy", "trimtab_regular"]
    assert {name: registry.get(name) for name in own} == own


def test_the_callback_raises_nothing_whatever_the_trainer_is() -> None:
    rig = SkyRlRig()
    callback = skyrl.callback(url="memory:", job="run")
    for event in ("on_train_start", "on_step_end", "on_train_end"):
        getattr(callback, event)(SimpleNamespace(), SimpleNamespace(), None)
    assert callback.attachment is None
    rig.close()


def test_only_the_policys_loss_is_told_and_only_what_has_changed() -> None:
    rig = SkyRlRig()
    steering = skyrl.Steering(rig.cfg.trainer.algorithm, recorded=True)
    assert steering.config() == {}
    panel = steering.panel()
    panel.turn({"clip_low": 0.1, "importance": "none", "importance_high": 3.0})
    assert steering.config() == {
        "eps_clip_low": 0.1,
        "off_policy_correction": {"tis_ratio_type": None, "token_tis_ratio_clip_high": 3.0},
    }
    rig.close()


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("importance", "tis", "start with generator.sampling_params.logprobs set"),
        ("dual_clip", 3.0, "set policy_loss_type=dual_clip"),
        ("kl_coef", 0.1, "the workers read kl_loss_coef from their own copy of the configuration"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(name: str, value: Any, reason: str) -> None:
    rig = SkyRlRig()
    algorithm = rig.cfg.trainer.algorithm
    algorithm.policy_loss_type = "regular"
    can = skyrl.Steering(algorithm, recorded=False).panel().capabilities()
    assert can.refusal(name, value) == f"{name}: restart in this trainer: {reason}"
    rig.close()


def test_a_loss_that_the_registry_does_not_have_stays_the_runs_own_and_its_controls_are_refused() -> None:
    rig = SkyRlRig()
    rig.registry.functions = {"cross_entropy": rig.policy_loss}
    rig.cfg.trainer.algorithm.policy_loss_type = rig.dispatch.algorithm.policy_loss_type = "cross_entropy"
    rig.attach()
    assert rig.attachment is not None
    refusal = rig.attachment.emitter.capabilities.refusal("clip_low", 0.1)
    told: list[Any] = []
    rig.dispatch.registry.get = lambda name: told.append(name) or rig.policy_loss  # type: ignore[method-assign,assignment,func-returns-value]
    rig.step()
    assert told == ["cross_entropy"]
    assert refusal == (
        "clip_low: restart in this trainer: policy_loss_type=cross_entropy has no loss that measures: it is no "
        "policy's, or not registered on the driver"
    )
    rig.close()


def test_a_step_is_told_whatever_its_metrics_are() -> None:
    rig = SkyRlRig()
    rig.attach()
    for step, metrics in ((1, {"policy_loss": "none", "grad_norm": 2.0}), ("second", 7), (3, {"policy_loss": 0.5})):
        rig.callback.on_step_end(rig, SimpleNamespace(global_step=step, metrics=metrics), None)
    assert rig.attachment is not None
    rig.attachment.detach()
    sent = rig.attachment.emitter.transport.sent  # type: ignore[attr-defined]
    assert [(summary.step, summary.scalars) for summary in sent] == [
        (1, {"grad_norm": 2.0}),
        (2, {}),
        (3, {"loss": 0.5}),
    ]
    rig.close()
