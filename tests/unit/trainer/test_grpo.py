"""The step: what it samples with, what it reports, and that controls act at the step boundary."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
import torch
from torch import Tensor, nn

import trimtab
from trimtab.hooks.controls import Capabilities, Liveness
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.records import Command, StepSummary
from trimtab.hooks.transport.memory import MemoryTransport
from trimtab.trainer.build import build
from trimtab.trainer.config import RunConfig, validated
from trimtab.trainer.engines import capabilities
from trimtab.trainer.grpo import GRPOTrainer
from trimtab.trainer.quant import quantised_formats
from trimtab.trainer.rollouts.torch_sampler import TorchSampler
from trimtab.trainer.tasks.running_sum import RunningSum
from trimtab.trainer.warm_start import build_decoder


@contextmanager
def training(config: RunConfig) -> Iterator[tuple[GRPOTrainer, MemoryTransport]]:
    """A trainer at step 0 and the transport that keeps its summaries."""
    transport, (model, task) = MemoryTransport(), build(config)
    with Emitter(
        transport, job="t", attempt=0, controls=config.controls_at(0), capabilities=capabilities(config, model)
    ) as emitter:
        yield GRPOTrainer(config, emitter, model, task), transport


def changed(config: RunConfig, **sections: object) -> RunConfig:
    data = config.model_dump()
    for name, value in sections.items():
        data[name] = {**data[name], **value} if isinstance(value, dict) else value
    return validated(data)


def summaries(config: RunConfig) -> list[StepSummary]:
    with training(config) as (trainer, transport):
        list(trainer.run())
    return list(transport.sent)


def test_a_run_is_reproduced_by_its_seed(tiny: RunConfig) -> None:
    with training(tiny) as (first, _), training(tiny) as (second, _), training(changed(tiny, seed=1)) as (other, _):
        rewards = [[record.loss for record in trainer.run()] for trainer in (first, second, other)]
    assert rewards[0] == rewards[1]
    assert rewards[0] != rewards[2]


def test_every_step_reports_its_tokens_ratios_and_scalars(tiny: RunConfig) -> None:
    with training(tiny) as (trainer, transport):
        records = list(trainer.run())
    assert [summary.step for summary in transport.sent] == list(range(6))
    for record, summary in zip(records, transport.sent, strict=True):
        assert set(summary.sketches) == {"update", "mismatch", "shadow"}
        assert summary.tokens == sum(part.n for part in summary.sketches["update"].signs())
        assert summary.scalars["reward_mean"] == record.reward_mean
        assert 0 < summary.scalars["head_tv"] < 1
        assert summary.scalars["centering_size"] >= 0
        assert summary.scalars["length_p95"] >= summary.scalars["length_mean"] > 0
        assert 0 <= summary.scalars["truncated_fraction"] <= 1
        assert summary.sequences is not None
        assert summary.sequences.sequences == summary.sequences.observed == 24
        assert summary.applied.sampler_format == "nvfp4"
        mismatch = summary.sketches["mismatch"].pooled
        mean = mismatch.sum("log_ratio") / mismatch.n
        variance = mismatch.sum("log_ratio_sq") / mismatch.n - mean**2
        assert math.sqrt(variance * mismatch.n / (mismatch.n - 1)) == pytest.approx(record.mismatch_std, rel=1e-4)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_how_far_an_update_moves_the_weights(tiny: RunConfig, optimizer: str) -> None:
    config = changed(tiny, update={"optimizer": optimizer, "minibatches": 1})
    with training(config) as (trainer, transport):
        before = trainer.learner.copy()
        trainer.step()
        after = trainer.learner.weights()
        moved = math.sqrt(sum(float(((after[name] - old).double() ** 2).sum()) for name, old in before.items()))
        scalars = transport.sent[0].scalars
    assert scalars["update_norm"] == pytest.approx(moved, rel=1e-5)
    if optimizer == "sgd":
        step = config.update.lr * min(scalars["grad_norm"], config.update.gradient_clip)
        assert scalars["update_norm"] == pytest.approx(step, rel=1e-3)


def test_the_sampler_is_lag_steps_old_once_the_run_is(tiny: RunConfig) -> None:
    assert [summary.staleness for summary in summaries(tiny)] == [0.0, 1.0, 2.0, 2.0, 2.0, 2.0]


def test_without_lag_and_quantisation_the_first_minibatch_has_ratio_one(tiny: RunConfig) -> None:
    config = changed(
        tiny,
        rollout={"lag": 0},
        controls={"sampler_format": "bf16"},
        update={"minibatches": 1},
    )
    for summary in summaries(config):
        update = summary.sketches["update"].pooled
        assert abs(update.quantile(0.001)) < 0.05
        assert abs(update.quantile(0.999)) < 0.05


def test_the_twin_equals_the_ratio_where_everything_is_bf16(tiny: RunConfig) -> None:
    config = changed(tiny, controls={"sampler_format": "bf16"})
    for summary in summaries(config):
        # The sampler computes with a cache, the twin without, so that sums are ordered otherwise; nothing more.
        for quantile in (0.05, 0.5, 0.95):
            update = summary.sketches["update"].pooled.quantile(quantile)
            assert update == pytest.approx(summary.sketches["shadow"].pooled.quantile(quantile), abs=0.03)


def test_the_twin_is_computed_every_so_many_steps(tiny: RunConfig) -> None:
    config = changed(tiny, shadow={"every": 3})
    assert ["shadow" in summary.sketches for summary in summaries(config)] == [True, False, False] * 2
    none = changed(tiny, shadow={"every": 0})
    assert not any("shadow" in summary.sketches for summary in summaries(none))
    assert not capabilities(none, build_decoder(none)).shadow


def test_a_quantised_trainer_moves_the_twin_away_from_the_ratio(tiny: RunConfig) -> None:
    config = changed(tiny, controls={"train_format": "nvfp4"})
    last = summaries(config)[-1]
    assert last.sketches["update"] != last.sketches["shadow"]


def test_a_command_acts_from_the_next_step_on(tiny: RunConfig) -> None:
    with training(tiny) as (trainer, transport):
        trainer.step()
        overrides = {"ratio_reference": "recomputed", "centering": True, "lr_scale": 0.5, "sampler_format": "fp8-row"}
        transport.set_command(
            Command(job="t", attempt=0, generation=1, overrides=overrides, reason="test", issuer="test")
        )
        during, after = trainer.step(), trainer.step()
    assert (during.generation, during.controls.centering) == (0, False)
    assert after.generation == 1
    assert after.controls == tiny.controls.overlaid(overrides)
    assert trainer.learner.optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * tiny.update.lr)


def test_the_runs_own_schedule_and_an_override_do_not_fight(tiny: RunConfig) -> None:
    config = changed(tiny, schedule=[{"step": 3, "controls": {"sampler_format": "bf16"}}])
    with training(config) as (trainer, transport):
        transport.set_command(
            Command(job="t", attempt=0, generation=1, overrides={"centering": True}, reason="test", issuer="test")
        )
        records = list(trainer.run())
    assert [record.controls.sampler_format for record in records] == ["nvfp4"] * 3 + ["bf16"] * 3
    assert [record.controls.centering for record in records] == [False] + [True] * 5


def test_calibrated_bounds_widen_only_when_asked_for(tiny: RunConfig) -> None:
    config = changed(tiny, rollout={"prompts": 24, "group_size": 8})
    with training(config) as (trainer, transport):
        nominal = [trainer.step() for _ in range(3)]
        transport.set_command(
            Command(
                job="t", attempt=0, generation=1, overrides={"clip_mode": "calibrated"}, reason="test", issuer="test"
            )
        )
        trainer.step()
        calibrated = trainer.step()
    assert all((record.clip_low, record.clip_high) == pytest.approx((0.8, 1.2)) for record in nominal)
    assert calibrated.clip_low < 0.8 or calibrated.clip_high > 1.2
    assert calibrated.clip_low >= 0.8 / math.e - 1e-6


class Copies:
    """Part of a model, which counts the copies that are made of it."""

    made = 0

    def __deepcopy__(self, _: object) -> Copies:
        self.made += 1
        return self


def test_a_model_is_copied_for_trainer_twin_and_sampler_and_for_no_check(tiny: RunConfig) -> None:
    (model, task), copies = build(tiny), Copies()
    object.__setattr__(model, "copies", copies)
    emitter = Emitter(
        MemoryTransport(), job="t", attempt=0, controls=tiny.controls, capabilities=Capabilities(controls={})
    )
    with closing(GRPOTrainer(tiny, emitter, model, task)):
        assert copies.made == 3


def test_capabilities_say_what_the_configuration_allows(tiny: RunConfig) -> None:
    model = build_decoder(changed(tiny, model={"width": 48, "hidden": 48}))
    can = capabilities(changed(tiny, rollout={"head": 0}), model)
    assert can.controls["centering"] is Liveness.ABSENT
    assert can.refusal("centering", True) == (
        "centering: the rollouts record no sampler head (top log-probs), which score centering needs"
    )
    assert can.controls["sampler_format"] is Liveness.NEXT_ROLLOUT
    assert "nvfp4" in can.sampler_formats
    assert "mxfp8" not in can.sampler_formats  # its blocks of 32 do not divide a width of 48
    assert capabilities(tiny, model).controls["centering"] is Liveness.LIVE
    assert capabilities(tiny, model).refusal("centering", True) is None


def test_a_dead_agent_changes_nothing(tiny: RunConfig) -> None:
    with training(tiny) as (trainer, _):
        expected = [record.loss for record in trainer.run()]
    can = capabilities(tiny, build_decoder(tiny))
    with trimtab.attach(
        "http://127.0.0.1:9", job="t", attempt=0, controls=tiny.controls, capabilities=can, spool=None
    ) as emitter:
        alone = GRPOTrainer(tiny, emitter, *build(tiny))
        assert [record.loss for record in alone.run()] == expected


class SumSoFar:
    """[B, 1, width]"""

    def __init__(self, batch: int) -> None:
        self.value = torch.zeros(batch, 1, 32)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.value = self.value.repeat_interleave(repeats, 0)


class CountingModel(nn.Module):
    """A language model that is no transformer: it sees the sum of its tokens so far, and its cache is that sum."""

    context = None

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 32)
        self.mix = nn.Linear(32, 32)
        self.out = nn.Linear(32, 16)

    def forward(
        self,
        tokens: Tensor,
        *,
        cache: SumSoFar | None = None,
        keep_last: int | None = None,
        padding: Tensor | None = None,
    ) -> Tensor:
        assert padding is None
        sums = self.embedding(tokens).cumsum(1)
        if cache is not None:
            sums = sums + cache.value
            cache.value = sums[:, -1:]
        kept = sums if keep_last is None else sums[:, -keep_last:]
        return self.out(torch.relu(self.mix(kept)))  # type: ignore[no-any-return]

    def new_cache(self, batch: int, capacity: int, kv_format: str = "none") -> SumSoFar:  # noqa: ARG002
        return SumSoFar(batch)


def test_any_module_with_linear_layers_trains(tiny: RunConfig) -> None:
    torch.manual_seed(0)
    config = changed(tiny, model={"keep": ("out",)}, outliers={"layers": ("mix",)})
    transport, model = MemoryTransport(), CountingModel()
    with Emitter(
        transport, job="t", attempt=0, controls=config.controls, capabilities=capabilities(config, model)
    ) as emitter:
        trainer = GRPOTrainer(config, emitter, model, RunningSum(digits=3))
        assert isinstance(trainer.sampler, TorchSampler)
        assert quantised_formats(trainer.sampler.model) == {"mix": "nvfp4", "out": "bf16"}
        records = list(trainer.run())
    assert len(records) == len(transport.sent) == 6
    assert all(summary.tokens > 0 for summary in transport.sent)


@pytest.mark.parametrize(("prompts", "minibatches"), [(5, 4), (9, 4), (7, 7), (6, 1)])
def test_a_pass_makes_as_many_updates_as_it_is_told_of_groups_that_are_whole(
    tiny: RunConfig, prompts: int, minibatches: int
) -> None:
    config = changed(tiny, steps=1, rollout={"prompts": prompts}, update={"minibatches": minibatches, "passes": 2})
    with training(config) as (trainer, _):
        trainer.step()
        updates = {int(state["step"]) for state in trainer.learner.optimizer.state.values()}
        parts = list(trainer._minibatches())
    assert updates == {2 * minibatches}
    for number in range(2):
        rows = torch.cat(parts[number * minibatches : (number + 1) * minibatches])
        assert sorted(rows.tolist()) == list(range(4 * prompts))
    assert all(len(part) % 4 == 0 for part in parts)


def test_an_update_of_no_finite_gradient_is_left_out_and_reported(tiny: RunConfig) -> None:
    with training(tiny) as (trainer, transport):
        trainer.step()
        before = {name: value.clone() for name, value in trainer.learner.model.state_dict().items()}
        spoilt = trainer.learner.model.get_parameter("blocks.0.up.weight").register_hook(lambda grad: grad * math.nan)
        bad = trainer.step()
        assert all(torch.equal(value, before[name]) for name, value in trainer.learner.model.state_dict().items())
        spoilt.remove()
        good = trainer.step()
    assert math.isnan(bad.grad_norm)
    assert math.isfinite(good.grad_norm)
    assert [summary.scalars["skipped_update_fraction"] for summary in transport.sent] == [0.0, 1.0, 0.0]
    assert math.isnan(transport.sent[1].scalars["grad_norm"])


@pytest.mark.parametrize("mode", ["thread", "process"])
@pytest.mark.parametrize("in_flight", ["wait", "keep", "drop"])
def test_a_run_whose_sampler_is_ahead_trains_on_no_staler_tokens_than_allowed(
    tiny: RunConfig, mode: str, in_flight: str
) -> None:
    config = changed(
        tiny,
        rollout={"lag": 0},
        asynchrony={"mode": mode, "max_staleness": 2, "in_flight": in_flight},
    )
    with training(config) as (trainer, transport), closing(trainer):
        records = list(trainer.run())
    assert len(records) == 6
    for record, summary in zip(records, transport.sent, strict=True):
        assert 0 <= record.staleness <= min(2, record.step)
        assert summary.staleness == record.staleness
        assert set(summary.sketches) == {"update", "mismatch", "shadow"}
        assert summary.scalars["rollout_seconds"] <= summary.scalars["seconds"]


def test_weights_go_to_the_sampler_every_so_many_steps(tiny: RunConfig) -> None:
    config = changed(tiny, rollout={"lag": 0}, asynchrony={"sync_every": 3})
    assert [summary.staleness for summary in summaries(config)] == [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]


def test_the_twin_s_denominator_is_of_each_token_s_own_version(tiny: RunConfig) -> None:
    """In a BF16 run the shadow ratio is the ratio, also where a batch was sampled by two versions in turn."""
    config = changed(
        tiny,
        rollout={"lag": 0, "prompts": 12},
        outliers={"channels": 0},
        update={"minibatches": 1, "lr": 1e-2},
        asynchrony={"mode": "thread", "max_staleness": 1, "in_flight": "drop"},
        controls={"sampler_format": "bf16", "train_format": "bf16"},
    )
    with training(config) as (trainer, transport), closing(trainer):
        list(trainer.run())
    for summary in transport.sent:
        update, shadow = (summary.sketches[name].pooled for name in ("update", "shadow"))
        assert shadow.n == update.n
        assert shadow.sum("log_ratio_sq") == pytest.approx(update.sum("log_ratio_sq"), rel=0.05, abs=1e-3)
