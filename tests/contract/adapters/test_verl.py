"""verl: the stand-in, and the released loss, configuration and registry where they can be imported."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import textwrap
import warnings
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rigs.verl import ActorConfig, VerlRig

from trimtab.hooks import verl
from trimtab.hooks.meter import METER
from trimtab.hooks.verl_correction import Correction
from trimtab.hooks.verl_steering import Steering

INSTALLED = all(importlib.util.find_spec(name) for name in ("verl", "tensordict", "omegaconf", "ray", "hydra"))
needs_verl = pytest.mark.skipif(not INSTALLED, reason="verl is not installed: only its stand-in is run")
B, T, PROMPT = 3, 5, 2


@pytest.fixture
def losses() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("verl.workers.utils.losses")


def real_data(**metadata: Any) -> tuple[Any, Any, dict[str, Any], Any]:
    """A micro-batch without padding, as verl's engine hands it to the loss, and the model's output."""
    from tensordict import TensorDict
    from verl.utils import tensordict_utils
    from verl.workers.config import FSDPActorConfig

    generator = torch.Generator().manual_seed(5)
    lengths = [T, T - 2, T - 1]

    def nested(make: Any, extra: int = 0) -> torch.Tensor:
        return torch.nested.as_nested_tensor([make(length + extra) for length in lengths], layout=torch.jagged)

    def normal(length: int) -> torch.Tensor:
        return -2 + 0.3 * torch.randn(length, generator=generator)

    tensors = {
        "prompts": nested(lambda _: torch.ones(PROMPT, dtype=torch.long)),
        "responses": nested(lambda length: torch.ones(length, dtype=torch.long)),
        "response_mask": nested(lambda length: torch.ones(length)),
        "old_log_probs": nested(normal),
        "rollout_log_probs": nested(normal),
        "advantages": nested(lambda length: torch.randn(length, generator=generator)),
    }
    data = TensorDict(tensors, batch_size=[B])
    sizes = {"dp_size": 1, "batch_num_tokens": sum(lengths), "global_batch_size": B}
    tensordict_utils.assign_non_tensor(data, **sizes, **metadata)
    config = FSDPActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1)
    leaf = torch.cat([normal(length + PROMPT) for length in lengths]).requires_grad_()
    return config, data, {"log_probs": leaf, "entropy": leaf.detach().abs()}, leaf


def gradient_of(loss_fn: Any, **metadata: Any) -> tuple[torch.Tensor, torch.Tensor, Any]:
    config, data, output, leaf = real_data(**metadata)
    loss, _ = loss_fn(config=config, model_output=output, data=data)
    loss.backward()
    assert leaf.grad is not None
    return loss.detach(), leaf.grad, config


@needs_verl
def test_the_released_loss_is_unchanged_and_measured_whole(losses: Any) -> None:
    METER.__init__()  # type: ignore[misc]
    expected, got = gradient_of(losses.ppo_loss), gradient_of(verl.ppo_loss, trimtab="{}")
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])
    from trimtab.hooks.layout import SIZE, parts

    part = parts(METER.take()[:SIZE])
    assert METER.failures == 0
    assert part.totals[:, 0].sum() == 12  # tokens
    assert part.totals[:, 2].sum() == 12  # of which entropy was seen
    assert part.observed.tolist() == [1, 1, 0]  # update, and mismatch by the rollout's log-probs


@needs_verl
def test_the_released_loss_obeys_what_the_batch_carries_and_its_frozen_configuration_stays(losses: Any) -> None:
    def tight(config: Any, **rest: Any) -> Any:
        return losses.ppo_loss(verl.with_controls(config, {"clip_low": 0.01, "clip_high": 0.02}), **rest)

    told = '{"clip_low": 0.01, "clip_high": 0.02}'
    expected, got = gradient_of(tight), gradient_of(verl.ppo_loss, trimtab=told)
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])
    assert not torch.equal(got[1], gradient_of(losses.ppo_loss)[1])
    assert (got[2].clip_ratio_low, got[2].clip_ratio_high) == (0.2, 0.2)


@needs_verl
def test_the_released_registry_calls_the_measuring_loss_by_keyword(losses: Any) -> None:
    verl.register_losses()
    verl.register_losses()
    METER.__init__()  # type: ignore[misc]

    def named(config: Any, **rest: Any) -> Any:
        object.__setattr__(config.policy_loss, "loss_mode", "trimtab_vanilla")
        return losses.ppo_loss(config, **rest)

    expected, got = gradient_of(losses.ppo_loss), gradient_of(named)
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])
    assert METER.failures == 0
    assert METER.take()[:].sum() > 0


@needs_verl
def test_the_released_correction_takes_what_is_written(losses: Any) -> None:
    del losses
    from omegaconf import OmegaConf
    from verl.trainer.ppo.rollout_corr_helper import _parse_rollout_is_threshold

    config = OmegaConf.create({"rollout_is": None, "rollout_is_threshold": 2.0, "bypass_mode": False})
    correction = Correction(config)
    knobs = correction.knobs(recorded=True)
    for name, value in (("importance", "mis"), ("importance_low", 0.5), ("importance_high", 4.0)):
        assert knobs[name].put is not None
        knobs[name].put(value)
    assert config.rollout_is == "token"
    assert _parse_rollout_is_threshold(config.rollout_is_threshold) == (4.0, 0.5)


def test_the_driver_turns_the_correction_and_puts_back_what_was() -> None:
    config: dict[str, Any] = {"rollout_is": None, "rollout_is_threshold": 2.0, "bypass_mode": False}
    panel = Steering(trainer_with(config)).panel()
    own = panel.own()
    assert (own.importance, own.importance_high) == ("none", 2.0)
    panel.turn({"importance": "tis", "importance_high": 3.0, "importance_level": "sequence"})
    assert (config["rollout_is"], config["rollout_is_threshold"]) == ("sequence", 3.0)
    panel.turn({})
    assert config == {"rollout_is": None, "rollout_is_threshold": 2.0, "bypass_mode": False}


def test_what_the_correction_cannot_do_is_refused_and_changes_nothing() -> None:
    config: dict[str, Any] = {"rollout_is": "token", "rollout_is_threshold": 2.0, "bypass_mode": False}
    panel = Steering(trainer_with(config)).panel()
    refused = panel.turn({"importance_low": 0.5, "importance_level": "geometric"})
    assert [name for name, _ in refused] == ["importance_low", "importance_level"]
    assert config == {"rollout_is": "token", "rollout_is_threshold": 2.0, "bypass_mode": False}


def trainer_with(correction: Any, **rollout: Any) -> Any:
    trainer = VerlRig().trainer
    trainer.config.algorithm.rollout_correction = correction
    vars(trainer.config.actor_rollout_ref.rollout).update(rollout)
    return trainer


@pytest.mark.parametrize(
    ("correction", "recorded", "reason"),
    [
        (None, True, "start with algorithm.rollout_correction, whose rollout_is may be null"),
        ({"rollout_is": "token"}, False, "start with actor_rollout_ref.rollout.calculate_log_probs=true"),
        ({"bypass_mode": True}, True, "in bypass mode the ratio is against the sampler, and is clipped instead"),
    ],
)
def test_importance_is_refused_where_it_cannot_be(correction: Any, recorded: bool, reason: str) -> None:
    panel = Steering(trainer_with(correction, calculate_log_probs=recorded)).panel()
    refusal = panel.capabilities(rollout_logprobs=recorded).refusal("importance", "tis")
    assert refusal == f"importance: restart in this trainer: {reason}"


def test_in_bypass_mode_old_is_the_sampler() -> None:
    config = ActorConfig(policy_loss={"loss_mode": "bypass_mode"})
    assert verl._olds(config, "old", None) == {"rollout_logprobs": "old"}
    assert Steering(trainer_with({"bypass_mode": True})).panel().own().ratio_reference == "sampler"


def test_the_loss_is_put_in_place_by_verls_own_call_and_the_batch_carries_changes_only() -> None:
    rig = VerlRig()
    rig.attach()
    sent = rig.trainer.actor_rollout_wg.loss_fn
    assert isinstance(sent, partial)
    assert sent.func is verl.ppo_loss
    seen: list[Any] = []
    inner = rig.trainer.actor_rollout_wg.update_actor

    def update_actor(batch: Any) -> Any:
        seen.append(batch.extra_info.get("trimtab"))
        return inner(batch)

    rig.trainer.actor_rollout_wg.update_actor = update_actor  # type: ignore[method-assign]
    rig.step()
    assert rig.attachment is not None
    rig.attachment.panel.turn({"dual_clip": float("inf"), "clip_low": 0.1})
    rig.step()
    rig.attachment.panel.turn({})
    rig.step()
    assert seen == ["{}", '{"clip_low": 0.1, "dual_clip": 10000000000.0}', "{}"]
    rig.close()


class Metrics(dict[str, Any]):
    """What cannot be gone over."""

    def keys(self) -> Any:
        raise RuntimeError("no")

    def __iter__(self) -> Any:
        raise RuntimeError("no")


def test_nothing_that_a_trainer_says_of_a_step_raises_or_keeps_the_step_from_being_told() -> None:
    rig = VerlRig()
    rig.attach()
    rig.step()
    assert rig.attachment is not None
    trainer, batch = rig.trainer, SimpleNamespace(extra_info={})
    trainer._update_actor(batch, metrics={"actor/pg_loss": [0.5, 1.5], "actor/grad_norm": "none"})
    trainer.global_steps = "second"  # type: ignore[assignment]
    trainer.on_step_end()
    trainer._update_actor(batch, metrics=Metrics())
    trainer.on_step_end()
    rig.attachment.emitter.close()
    sent = rig.attachment.emitter.transport.sent  # type: ignore[attr-defined]
    assert [(summary.step, summary.scalars) for summary in sent] == [
        (1, {"grad_norm": 1.0}),
        (2, {"loss": 1.0, "grad_norm": 1.0}),
        (3, {}),
    ]
    rig.close()


def test_once_it_is_detached_the_workers_measure_no_more() -> None:
    rig = VerlRig()
    rig.attach()
    rig.step()
    assert rig.attachment is not None
    rig.attachment.detach()
    METER.take()
    rig.step()
    assert METER._accumulator.take()[0].sum() == 0
    rig.close()


def test_a_dual_clip_that_verl_would_stop_at_is_moved_to_the_nearest_that_it_takes() -> None:
    assert verl.with_controls(ActorConfig(), {"dual_clip": 1.0}).clip_ratio_c > 1.0


def test_a_trainer_of_each_mode_is_registered_and_attaches_when_training_begins() -> None:
    rig = VerlRig()
    registry: dict[str, Any] = {"sync": type(rig.trainer)}

    def register_trainer(name: str) -> Any:
        return lambda made: registry.setdefault(name, made)

    rig.install("verl.trainer.ppo.v1.trainer_base", TRAINER_REGISTRY=registry, register_trainer=register_trainer)
    verl.register_trainers()
    verl.register_trainers()
    assert list(registry) == ["sync", "trimtab_sync"]
    trainer = registry["trimtab_sync"](rig)
    trainer.actor_rollout_wg = SimpleNamespace(workers=[], set_loss_fn=lambda _: None)
    rig.environment(TRIMTAB_URL="memory:", TRIMTAB_JOB="run")
    trainer.on_train_begin()
    assert trainer.trimtab.attached
    trainer.trimtab.detach()
    rig.close()


TRAINER = INSTALLED and importlib.util.find_spec("transfer_queue") is not None


@pytest.mark.skipif(not TRAINER, reason="verl's trainer is not installed: only its stand-in is run")
def test_the_released_trainer_is_attached_in_every_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    from omegaconf import OmegaConf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer_base = importlib.import_module("verl.trainer.ppo.v1.trainer_base")
        importlib.import_module("verl.trainer.ppo.v1.trainer_sync")
    verl.register_trainers()
    made = trainer_base.get_trainer_cls("trimtab_sync")
    assert issubclass(made, trainer_base.get_trainer_cls("sync"))
    trainer = made.__new__(made)  # its constructor starts Ray
    actor = {
        "_target_": "verl.workers.config.FSDPActorConfig",
        "strategy": "fsdp",
        "rollout_n": 1,
        "ppo_micro_batch_size_per_gpu": 1,
        "clip_ratio": 0.2,
        "clip_ratio_low": 0.2,
        "clip_ratio_high": 0.28,
        "clip_ratio_c": 3.0,
    }
    trainer.config = OmegaConf.create(
        {
            "actor_rollout_ref": {"actor": actor, "rollout": {"calculate_log_probs": True}},
            "algorithm": {"rollout_correction": {"rollout_is": None, "rollout_is_threshold": 2.0}},
        }
    )
    sent: list[Any] = []
    trainer.actor_rollout_wg = SimpleNamespace(workers=[], set_loss_fn=sent.append)
    trainer.checkpoint_manager = SimpleNamespace(update_weights=lambda _: None)
    trainer.timing_raw, trainer.global_steps = {}, 1
    monkeypatch.setenv("TRIMTAB_URL", "memory:")
    monkeypatch.setenv("TRIMTAB_JOB", "run")
    trainer.on_train_begin()
    attachment = trainer.trimtab
    assert (sent[0].func, sent[0].keywords["config"].clip_ratio_high) == (verl.ppo_loss, 0.28)
    attachment.panel.turn({"clip_high": 0.1, "importance": "tis"})
    assert trainer.config.algorithm.rollout_correction.rollout_is == "token"
    assert attachment.panel.own().clip_high == 0.28
    trainer.on_step_end()
    assert attachment.failures <= 1  # there is no Ray to ask; the released loop itself is not touched by that
    attachment.detach()
    assert trainer.config.algorithm.rollout_correction.rollout_is is None
    assert "on_step_end" not in vars(trainer)


@needs_verl
def test_external_lib_registers_the_measuring_losses_in_a_worker() -> None:
    code = """
        import warnings
        warnings.simplefilter("ignore")
        import verl.workers.config
        from verl.utils.import_utils import import_external_libs
        import_external_libs("trimtab.hooks.verl")
        from verl.trainer.ppo.core_algos import get_policy_loss_fn
        assert get_policy_loss_fn("trimtab_vanilla").__wrapped__ is get_policy_loss_fn("vanilla")
    """
    subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)], check=True)
