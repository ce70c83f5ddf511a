"""NeMo-RL: the stand-in, and the `ClippedPGLossFn` of the source where it is there."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from real_frameworks import needs, real
from rigs.nemo_rl import ClippedPGLossFn, NemoRlRig

from trimtab.hooks import nemo_rl
from trimtab.hooks.meter import METER
from trimtab.hooks.records import Command

ABSENT = ["nemo_rl.distributed.model_utils", "nemo_rl.distributed.batched_data_dict", "pynvml", "ray"] + [
    f"nemo_rl.{name}" for name in ("models", "data", "utils", "environments", "algorithms.x_token")
]


@pytest.fixture
def losses() -> Iterator[Any]:
    bare = ["nemo_rl", "nemo_rl.algorithms", "nemo_rl.algorithms.loss", "nemo_rl.distributed"]
    with real("nemo_rl.algorithms.loss.loss_functions", absent=ABSENT, bare=bare) as module:
        yield module


@needs("nemo_rl")
def test_the_released_loss_is_unchanged_and_its_bounds_are_turned(losses: Any) -> None:
    def made(**settings: Any) -> NemoRlRig:
        rig = NemoRlRig()
        correction = {
            "use_importance_sampling_correction": True,
            "truncated_importance_sampling_type": "tis",
            "truncated_importance_sampling_ratio": 2.0,
            "reference_policy_kl_penalty": 0.0,
        }
        rig.own = rig.loss = losses.ClippedPGLossFn(losses.ClippedPGLossConfig(**(correction | settings)))
        return rig

    plain, rig, tight = made(), made(), made(ratio_clip_max=0.03125, truncated_importance_sampling_ratio=1.0625)
    expected = [plain.step() for _ in range(7)]
    rig.attach()
    for step in expected[:3]:
        got = rig.step()
        assert torch.equal(got.loss, step.loss)
        assert torch.equal(got.gradient, step.gradient)
    assert rig.attachment is not None
    rig.attachment.emitter.transport.set_command(  # type: ignore[attr-defined]
        Command(
            job="run",
            attempt=rig.attachment.emitter.attempt,
            generation=1,
            overrides={"clip_high": 0.03125, "importance_high": 1.0625},
            reason="test",
            issuer="person",
        )
    )
    got = [rig.step() for _ in range(4)][-1]
    wanted = [tight.step() for _ in range(7)][-1]
    assert torch.equal(got.loss, wanted.loss)
    assert torch.equal(got.gradient, wanted.gradient)
    assert not torch.equal(wanted.loss, expected[-1].loss)
    rig.close()


def test_the_loss_is_itself_after_the_way_to_a_worker() -> None:
    sent = pickle.loads(pickle.dumps(nemo_rl.MeasuredLoss(ClippedPGLossFn())))
    assert (sent.loss_type, sent.input_type, sent.ratio_clip_max) == ("token_level", "logprob", 0.2)
    assert not hasattr(sent, "metric_normalizations")


def test_what_its_constructor_decides_is_for_a_restart() -> None:
    loss = ClippedPGLossFn()
    loss.truncated_importance_sampling_type = None
    loss.use_cispo = True
    can = nemo_rl.panel_of(loss).capabilities(rollout_logprobs=True)
    for name, value in (("importance", "mis"), ("importance_high", 3.0), ("dual_clip", 3.0), ("kl_coef", 0.1)):
        assert str(can.refusal(name, value)).startswith(f"{name}: restart in this trainer: ")
    assert can.refusal("clip_low", 0.1) is None


@pytest.mark.parametrize("loss", [[0.5, 1.5], torch.tensor([0.5, 1.5]), torch.tensor([0.5, 1.5], dtype=torch.bfloat16)])
def test_a_loss_for_each_of_several_batches_is_told_as_their_mean(loss: Any) -> None:
    rig = NemoRlRig()
    inner, results = rig.policy.train, [{"loss": loss, "grad_norm": "none"}, None, {"loss": 2.0}]

    def train(*given: Any, **named: Any) -> Any:
        inner(*given, **named)
        return results.pop(0)

    rig.policy.train = train  # type: ignore[method-assign]
    rig.attach()
    for _ in range(3):
        rig.step()
    assert rig.attachment is not None
    rig.attachment.detach()
    sent = rig.attachment.emitter.transport.sent  # type: ignore[attr-defined]
    told = [(summary.step, summary.scalars) for summary in sent]
    assert told == [(0, {"loss": 1.0}), (1, {}), (2, {"loss": 2.0})]
    assert vars(rig.policy)["train"] is train
    rig.close()


def test_once_it_is_detached_the_workers_measure_no_more() -> None:
    rig = NemoRlRig()
    rig.attach()
    rig.step()
    assert rig.attachment is not None
    rig.attachment.detach()
    METER.take()
    rig.step()
    assert METER._accumulator.take()[0].sum() == 0
    rig.close()
