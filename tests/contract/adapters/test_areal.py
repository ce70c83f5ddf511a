"""AReaL: the stand-in, and the released `grpo_loss_fn` where its source is there."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from real_frameworks import needs, real
from rigs.areal import ArealRig, PPOActor

from trimtab.hooks import areal
from trimtab.hooks.records import Command

ABSENT = [f"areal.{name}" for name in ("api", "infra", "experimental", "engine")] + [
    f"areal.utils.{name}" for name in ("logging", "stats_tracker", "data", "perf_tracer", "network", "offload")
]


@pytest.fixture
def losses() -> Iterator[Any]:
    bare = ["areal", "areal.trainer", "areal.trainer.ppo", "areal.utils"]
    stats = {name: lambda *_, **__: nullcontext() for name in ("scope", "denominator", "stat", "scalar")}
    given = {"areal.utils.stats_tracker": stats | {"scope_func_wrapper": lambda _: lambda function: function}}
    with real("areal.trainer.ppo.actor", absent=ABSENT, bare=bare, given=given) as module:
        yield module


@needs("areal")
def test_the_released_loss_is_unchanged_and_its_bounds_are_turned(losses: Any) -> None:
    inner = losses.grpo_loss_fn
    plain, rig, tight = ArealRig(), ArealRig(), ArealRig()
    plain.losses = rig.losses = tight.losses = losses
    expected = [plain.step() for _ in range(6)]
    rig.attach()
    for step in expected[:3]:
        got = rig.step()
        assert torch.equal(got.loss, step.loss)
        assert torch.equal(got.gradient, step.gradient)
    assert rig.attachment is not None
    overrides = {"clip_high": 0.01, "dual_clip": 1.25, "importance_high": 1.0625}
    rig.attachment.emitter.transport.set_command(  # type: ignore[attr-defined]
        Command(
            job="run",
            attempt=rig.attachment.emitter.attempt,
            generation=1,
            overrides=overrides,
            reason="test",
            issuer="person",
        )
    )
    rig.step(), rig.step()
    got = rig.step()
    rig.close()
    assert losses.grpo_loss_fn is inner
    tight.actor.config.eps_clip_higher, tight.actor.config.c_clip = 0.01, 1.25
    tight.actor.config.rejection_sampling.upper = 1.0625
    for _ in range(5):
        tight.step()
    wanted = tight.step()
    assert torch.equal(got.loss, wanted.loss)
    assert torch.equal(got.gradient, wanted.gradient)
    assert not torch.equal(wanted.loss, expected[-1].loss)
    assert rig.attachment.failures == 0


@needs("areal")
def test_the_released_loss_has_the_parameters_that_the_adapter_passes(losses: Any) -> None:
    assert list(inspect.signature(losses.grpo_loss_fn).parameters)[:3] == ["logprobs", "entropy", "input_data"]
    assert hasattr(losses.PPOActor, "ppo_update")


@pytest.mark.parametrize(
    ("decoupled", "recomputed", "reference"),
    [(True, False, "recomputed"), (False, True, "recomputed"), (False, False, "sampler")],
)
def test_what_old_means_follows_the_configuration(decoupled: bool, recomputed: bool, reference: str) -> None:
    rig = ArealRig()
    rig.actor.config.use_decoupled_loss, rig.actor.config.recompute_logprob = decoupled, recomputed
    assert areal.panel_of(rig.actor.config).own().ratio_reference == reference


def test_one_bound_for_both_sides_lets_each_be_turned_by_itself() -> None:
    rig = ArealRig()
    rig.attach()
    rig.step()
    assert rig.attachment is not None
    rig.attachment.panel.turn({"clip_low": 0.1, "clip_high": 0.2})
    rig.step()
    assert (rig.used["low"], rig.used["high"]) == (0.1, 0.2)
    rig.close()


def test_bounds_of_a_correction_that_is_not_there_are_refused_with_the_reason() -> None:
    rig = ArealRig()
    rig.actor.config.rejection_sampling = None
    refusal = areal.panel_of(rig.actor.config).capabilities(rollout_logprobs=True).refusal("importance_high", 3.0)
    assert refusal == (
        "importance_high: restart in this trainer: start with rejection_sampling by metric=ratio, bounds may be wide"
    )


def test_the_first_actor_that_updates_after_the_patch_is_attached_and_updates_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    updates: list[int] = []

    class Actor(PPOActor):
        def ppo_update(self, data: list[dict[str, Any]]) -> None:
            updates.append(len(data))
            super().ppo_update(data)

    monkeypatch.setenv("TRIMTAB_URL", "memory:")
    monkeypatch.setenv("TRIMTAB_JOB", "run")
    rig = ArealRig()
    rig.losses = rig.install("areal.trainer.ppo.actor", grpo_loss_fn=rig.grpo_loss_fn)
    areal._ATTACHED.clear()
    areal.patch(Actor)
    areal.patch(Actor)
    rig.actor = Actor(rig)
    for _ in range(3):
        rig.step()
    attachment = areal._ATTACHED.made()
    assert attachment is not None
    assert attachment.emitter.last_summary is not None
    assert (updates, attachment.emitter.last_summary.tokens, attachment.failures) == ([1, 1, 1], 21, 0)
    attachment.detach()
    areal._ATTACHED.clear()
    rig.close()


def test_one_bound_for_both_sides_is_one_again_and_moves_as_one_while_nothing_is_overridden() -> None:
    rig = ArealRig()
    rig.attach()
    config = rig.actor.config
    assert config.eps_clip_higher is None
    assert rig.attachment is not None
    config.eps_clip = 0.25  # a schedule of the run's own
    rig.step()
    assert (rig.used["low"], rig.used["high"]) == (0.25, 0.25)
    rig.attachment.panel.turn({"clip_low": 0.1})
    assert (config.eps_clip, config.eps_clip_higher) == (0.1, 0.25)
    rig.attachment.detach()
    assert (config.eps_clip, config.eps_clip_higher) == (0.25, None)
    rig.close()


def test_what_was_wrapped_around_the_loss_since_stays_there() -> None:
    rig = ArealRig()
    rig.attach()
    assert rig.attachment is not None
    ours = rig.losses.grpo_loss_fn
    theirs = rig.losses.grpo_loss_fn = lambda *given, **named: ours(*given, **named)
    rig.attachment.detach()
    assert rig.losses.grpo_loss_fn is theirs
    rig.step()
    assert rig.attachment.failures == 0
    rig.close()
