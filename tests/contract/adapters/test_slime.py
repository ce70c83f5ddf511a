"""slime and miles: the stand-in, and the policy loss of the source where it is there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from real_frameworks import needs, real
from rigs.base import Batch
from rigs.slime import SlimeRig, _lists, _logits, arguments

from trimtab.hooks import slime
from trimtab.hooks.controls import Liveness

MPU = SimpleNamespace(
    get_context_parallel_world_size=lambda: 1,
    get_tensor_model_parallel_rank=lambda: 0,
    get_context_parallel_rank=lambda: 0,
)
REST = {
    "advantage_estimator": "grpo",
    "use_opsm": False,
    "entropy_coef": 0.01,
    "calculate_per_token_loss": False,
    "custom_pg_loss_reducer_function_path": None,
    "skip_actor_forward_only": False,
    "observe_training_entropy": True,
    "qkv_format": "thd",
    "use_unbiased_kl": False,
    "save_debug_train_data": None,
    "rollout_top_p": 1.0,
}


@contextmanager
def slime_loss() -> Iterator[Any]:
    absent = ["megatron", "slime.utils.distributed_utils", "slime.utils.types", "ray"]
    bare = ["slime", "slime.backends", "slime.backends.megatron_utils", "slime.utils"]
    with real(slime.SLIME, absent=absent, bare=bare, given={"megatron.core": {"mpu": MPU}}) as module:
        yield module


@contextmanager
def miles_loss() -> Iterator[Any]:
    absent = ["megatron", "ray", "sglang", "miles.utils.types", "miles.backends.training_utils.parallel"]
    above = ["miles", "miles.utils", "miles.backends", "miles.backends.training_utils"]
    state = SimpleNamespace(cp=SimpleNamespace(size=1, rank=0), cp_size=1, cp_rank=0)
    given = {"miles.backends.training_utils.parallel": {"get_parallel_state": lambda: state}}
    bare = [*above, "miles.backends.training_utils.loss_hub"]
    with real(slime.MILES, absent=absent, bare=bare, given=given) as module:
        yield module


def losses(function: Any, rig: SlimeRig, steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What the released policy loss gives, with `function` called in its place; scores come from the rig."""
    made = []
    for step in range(steps):
        if rig.hooked:
            slime.before_train_step(rig.args, step, 0, [], None, None)
        batch = Batch.of(rig.generator)
        tensors = _lists(batch) | {"unconcat_tokens": None}
        tensors["rollout_mask_sums"] = torch.stack([mask.sum() for mask in tensors["loss_masks"]])
        loss, _ = function(rig.args, tensors, _logits(batch), lambda values: values.sum() / 20)
        loss.backward()
        assert batch.shift.grad is not None
        made.append((loss.detach(), batch.shift.grad))
    return made


@pytest.mark.parametrize(
    ("package", "source", "ours", "scores"),
    [
        pytest.param("slime", slime_loss, slime.loss, lambda pair: pair, marks=needs("slime")),
        pytest.param("miles", miles_loss, slime.miles_loss, lambda pair: pair[1], marks=needs("miles")),
    ],
    ids=["slime", "miles"],
)
def test_the_released_loss_is_unchanged_and_measured(package: str, source: Any, ours: Any, scores: Any) -> None:
    rig, plain = SlimeRig(**REST), SlimeRig(**REST)
    rig.close(), plain.close()  # the modules are the released ones
    plain.args.custom_tis_function_path = None  # the framework's own truncation
    with source() as module, torch.compiler.set_stance("force_eager"):
        module.get_log_probs_and_entropy = lambda *given, **named: scores(
            rig.get_log_probs_and_entropy(*given, **named)
        )
        expected = losses(module.policy_loss_function, plain, 4)
        rig.attach()
        got = losses(ours, rig, 4)
        attachment = slime._PROCESS.attached.made()
        assert attachment is not None
        attachment.emitter.close()
        sent = attachment.emitter.transport.sent  # type: ignore[attr-defined]
        assert [
            (summary.tokens, summary.negative.entropy_tokens + summary.positive.entropy_tokens) for summary in sent
        ] == [(21, 21)] * len(sent)
        assert attachment.failures == 0
        rig.close()
    for (loss, gradient), (other, of) in zip(got, expected, strict=True):
        assert torch.equal(loss, other)
        assert torch.equal(gradient, of)
    assert package not in sys.modules


def weighed(rule: str) -> torch.Tensor:
    rig = SlimeRig()
    rig.attach()
    rig.step()
    slime._PROCESS.rule = rule
    ratio = torch.tensor([0.25, 1.0, 4.0])
    loss, masks, _ = slime.tis(
        arguments(tis_clip_low=0.5),
        pg_loss=torch.ones(3),
        train_log_probs=[ratio.log()],
        rollout_log_probs=[torch.zeros(3)],
        loss_masks=["as they were"],
        total_lengths=[3],
        response_lengths=[3],
    )
    rig.close()
    assert masks == ["as they were"]
    return loss


def test_importance_is_a_rule_and_not_a_tensor_that_comes_and_goes() -> None:
    assert torch.allclose(weighed("tis"), torch.tensor([0.5, 1.0, 2.0]))
    assert torch.allclose(weighed("mis"), torch.tensor([0.0, 1.0, 0.0]))
    assert torch.equal(weighed("none"), torch.ones(3))


def test_a_batch_without_the_samplers_log_probs_crashes_nothing() -> None:
    loss = torch.ones(3)
    given = {"pg_loss": loss, "train_log_probs": [loss], "loss_masks": [loss]}
    assert slime.tis(arguments(), **given, rollout_log_probs=None) == (loss, [loss], {})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            {"use_tis": False},
            "the sampler's log-probs are not recorded: start with --use-tis or --get-mismatch-metrics",
        ),
        ({"use_rollout_logprobs": True}, "with --use-rollout-logprobs the ratio is against the sampler already"),
        ({"custom_tis_function_path": None}, "start with --custom-tis-function-path trimtab.hooks.slime.tis"),
    ],
)
def test_importance_is_refused_where_it_cannot_be(given: dict[str, Any], reason: str) -> None:
    can = slime.panel_of(arguments(**given)).capabilities(rollout_logprobs=True)
    assert can.refusal("importance", "mis") == f"importance: restart in this trainer: {reason}"
    slime.reset()


def test_metrics_of_the_mismatch_are_enough_to_turn_truncation_on_later() -> None:
    panel = slime.panel_of(arguments(use_tis=False, get_mismatch_metrics=True))
    assert panel.own().importance == "none"
    assert panel.capabilities().controls["importance"] is Liveness.LIVE
    slime.reset()


def test_a_loss_that_is_computed_again_in_the_backward_pass_is_measured_once() -> None:
    rig = SlimeRig(recompute_loss_function=True)
    rig.attach()
    slime.before_train_step(rig.args, 0, 0, [], None, None)
    batch = Batch.of(rig.generator)
    tensors = _lists(batch)
    for _ in range(2):
        slime.loss(rig.args, tensors, _logits(batch), torch.sum)
    slime.before_train_step(rig.args, 1, 0, [], None, None)
    attachment = slime._PROCESS.attached.made()
    assert attachment is not None
    assert attachment.emitter.last_summary is not None
    assert attachment.emitter.last_summary.tokens == 21
    rig.close()


def test_a_batch_of_a_step_whose_id_was_another_ones_is_measured_too() -> None:
    rig = SlimeRig(recompute_loss_function=True)
    rig.attach()
    slime.before_train_step(rig.args, 0, 0, [], None, None)
    for _ in range(20):
        batch = Batch.of(rig.generator)
        slime.loss(rig.args, _lists(batch), _logits(batch), torch.sum)  # its lists are gone behind this
    slime.before_train_step(rig.args, 1, 0, [], None, None)
    attachment = slime._PROCESS.attached.made()
    assert attachment is not None
    assert attachment.emitter.last_summary is not None
    assert attachment.emitter.last_summary.tokens == 20 * 21
    rig.close()


def test_a_version_without_the_scoring_function_trains_on_and_the_adapter_takes_itself_off() -> None:
    rig = SlimeRig()
    rig.attach()
    rig.module.policy_loss_function = lambda *_: "theirs"
    del rig.module.get_log_probs_and_entropy
    for step in range(4):
        slime.before_train_step(rig.args, step, 0, [], None, None)
        assert slime.loss(rig.args, {}, None, torch.sum) == "theirs"
    attachment = slime._PROCESS.attached.made()
    assert attachment is not None
    assert not attachment.attached
    rig.close()
