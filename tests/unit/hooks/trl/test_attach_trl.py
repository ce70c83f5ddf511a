"""TRL's GRPOTrainer with the adapter on: what it reports, and that nothing changes by itself."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import trl_runs as runs

from trimtab.hooks.controls import Controls, Liveness
from trimtab.hooks.records import RecordError
from trimtab.hooks.trl import CONTROL_TABLE, SeamError, attach
from trimtab.hooks.trl.seams import METHODS, check_seams


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """TRL and transformers warn of things that are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_with_nothing_overridden_the_run_is_the_same_to_the_bit(tmp_path: Path) -> None:
    alone = runs.grpo(tmp_path, sampler=runs.Sampler())
    alone.train()
    ridden = runs.grpo(tmp_path, sampler=runs.Sampler())
    attachment = attach(ridden, "memory:", job="run")
    ridden.train()
    assert attachment.failures == 0
    assert runs.same(runs.weights(alone), runs.weights(ridden))


def test_what_a_run_with_a_sampler_of_its_own_reports(tmp_path: Path) -> None:
    trainer = runs.grpo(tmp_path, sampler=runs.Sampler())
    attachment = attach(trainer, "memory:", job="run")
    trainer.train()
    summaries = runs.sent(attachment)
    assert [summary.step for summary in summaries] == [1, 2, 3, 4]
    assert [summary.pass_index for summary in summaries] == [0, 0, 1, 1]
    assert [summary.staleness for summary in summaries] == [0.0, 1.0, 2.0, 3.0]
    first, last = summaries[0], summaries[-1]
    assert first.sketches["update"].n == first.tokens > 0
    assert first.sketches["mismatch"].n == first.tokens
    assert first.sequences is not None
    assert first.sequences.sequences == 8
    assert {"loss", "grad_norm", "reward_mean", "reward_std", "zero_variance_fraction", "length_mean"} <= set(
        first.scalars
    )
    assert "reward_mean" not in last.scalars  # measured once a generation
    assert first.applied == Controls(clip_low=0.2, clip_high=0.2)
    spread = last.sketches["update"].signs()
    assert sum(part.n for part in spread) == last.tokens


def test_a_run_that_samples_by_transformers_reports_no_mismatch_and_can_weigh_nothing(tmp_path: Path) -> None:
    trainer = runs.grpo(tmp_path, steps=2)
    attachment = attach(trainer, "memory:", job="run")
    trainer.train()
    summary = runs.sent(attachment)[-1]
    assert set(summary.sketches) == {"update"}
    assert summary.capabilities.controls["clip_low"] is Liveness.LIVE
    assert summary.capabilities.refusal("importance", "tis") == (
        "importance: restart in this trainer: transformers' generate records no log-probs; use vLLM or a rollout_func"
    )


def test_the_ratio_is_one_where_generation_and_update_are_aligned(tmp_path: Path) -> None:
    trainer = runs.grpo(tmp_path, steps=2, num_iterations=1, steps_per_generation=1)
    attachment = attach(trainer, "memory:", job="run")
    trainer.train()
    for summary in runs.sent(attachment):
        assert summary.sketches["update"].sum("log_ratio_sq") == 0.0
        assert summary.sketches["update"].n == summary.tokens


def test_micro_batches_of_one_step_are_summed(tmp_path: Path) -> None:
    trainer = runs.grpo(tmp_path, steps=2, num_iterations=1, gradient_accumulation_steps=2)
    attachment = attach(trainer, "memory:", job="run")
    trainer.train()
    assert [summary.step for summary in runs.sent(attachment)] == [1, 2]
    assert runs.sent(attachment)[0].tokens > 16


def test_tool_tokens_are_not_counted(tmp_path: Path) -> None:
    class WithEnvironment(runs.Sampler):
        def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
            found = super().__call__(prompts, trainer)
            found["env_mask"] = [[0] + [1] * (len(ids) - 1) for ids in found["completion_ids"]]
            return found

    trainer = runs.grpo(tmp_path, steps=1, sampler=WithEnvironment())
    attachment = attach(trainer, "memory:", job="run")
    trainer.train()
    (summary,) = runs.sent(attachment)
    assert summary.sequences is not None
    assert summary.by_position[0].tokens == 8  # counted from the first that is live
    assert summary.tokens <= 8 * (runs.TASK.response_length - 1)


def test_log_probs_that_the_sampler_did_not_give_are_counted_and_leave_out_their_token(tmp_path: Path) -> None:
    class WithHoles(runs.Sampler):
        def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
            found = super().__call__(prompts, trainer)
            for row in found["logprobs"]:
                row[0] = None
            return found

    trainer = runs.grpo(tmp_path, steps=1, sampler=WithHoles())
    attachment = attach(trainer, "memory:", job="run")
    trainer.train()
    (summary,) = runs.sent(attachment)
    assert summary.nonfinite["rollout_logprobs"].nan == 8
    assert summary.sketches["mismatch"].n == summary.tokens - 8


def test_detached_it_leaves_nothing_behind_and_training_goes_on_the_same(tmp_path: Path) -> None:
    alone = runs.grpo(tmp_path)
    alone.train()
    trainer = runs.grpo(tmp_path)
    before = set(vars(trainer)), len(trainer.callback_handler.callbacks)
    attachment = attach(trainer, "memory:", job="run")
    assert set(vars(trainer)) != before[0]
    attachment.detach()
    assert (set(vars(trainer)), len(trainer.callback_handler.callbacks)) == before
    trainer.train()
    assert runs.same(runs.weights(alone), runs.weights(trainer))


def test_the_end_of_training_detaches(tmp_path: Path) -> None:
    trainer = runs.grpo(tmp_path, steps=1)
    attachment = attach(trainer, "memory:", job="run")
    trainer.train()
    assert not attachment.attached
    assert "compute_loss" not in vars(trainer)


def test_evaluation_is_not_reported(tmp_path: Path) -> None:
    trainer = runs.grpo(tmp_path, steps=1)
    trainer.eval_dataset = trainer.train_dataset.select(range(8))
    attachment = attach(trainer, "memory:", job="run")
    trainer.evaluate()
    trainer.train()
    assert [summary.step for summary in runs.sent(attachment)] == [1]


def test_a_second_attachment_is_refused(tmp_path: Path) -> None:
    trainer = runs.grpo(tmp_path)
    attachment = attach(trainer, "memory:", job="run")
    with pytest.raises(RecordError, match="attached already"):
        attach(trainer, "memory:", job="run")
    attachment.detach()
    attach(trainer, "memory:", job="run").detach()


def test_what_is_no_trainer_of_trl_is_refused() -> None:
    with pytest.raises(SeamError, match=r"SimpleNamespace is neither TRL's GRPOTrainer"):
        attach(SimpleNamespace(), "memory:", job="run")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"job": "no job"}, "job: 'no job'"),
        ({"head": -1}, "head: -1 is negative"),
        ({"shadow": object, "shadow_every": 0}, "shadow_every: 0 is below 1"),
    ],
)
def test_a_configuration_that_cannot_be_fails_before_step_0(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    trainer = runs.grpo(tmp_path)
    with pytest.raises(ValueError, match=message):
        attach(trainer, "memory:", **({"job": "run"} | arguments))
    assert "compute_loss" not in vars(trainer)


def _renamed(model: Any, tokens: Any) -> None:
    """What a method of TRL may become."""


def test_every_private_name_is_there_in_the_installed_trl_and_a_missing_one_is_named(tmp_path: Path) -> None:
    trainer = runs.grpo(tmp_path)
    check_seams(trainer, "sync")
    trainer._get_per_token_logps_and_entropies = _renamed
    del trainer.epsilon_low
    with pytest.raises(SeamError) as caught:
        check_seams(trainer, "sync")
    said = str(caught.value)
    assert "TRL 1.16.0 has no epsilon_low; no _get_per_token_logps_and_entropies(model, input_ids, " in said
    assert "which now is _get_per_token_logps_and_entropies(model, tokens)" in said
    assert "install that, or a trimtab that knows yours" in said


def test_the_asynchronous_trainer_has_its_names_too() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from trl.experimental.async_grpo import AsyncGRPOTrainer
    for name in METHODS["async"]:
        assert callable(getattr(AsyncGRPOTrainer, name))


def test_the_panel_has_every_control_of_the_table_and_no_other(tmp_path: Path) -> None:
    trainer = runs.grpo(tmp_path, sampler=runs.Sampler(head=True), beta=0.01)
    attachment = attach(trainer, "memory:", job="run", head=16, shadow=torch.no_grad)
    assert set(attachment.panel.knobs) | {"max_staleness"} == set(CONTROL_TABLE)
    for name, knob in attachment.panel.knobs.items():
        assert knob.liveness is CONTROL_TABLE[name], name
    attachment.detach()


def test_a_fault_of_the_adapter_takes_it_off_after_three_steps_and_the_run_is_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="trimtab")
    alone = runs.grpo(tmp_path)
    alone.train()
    trainer = runs.grpo(tmp_path)
    attachment = attach(trainer, "memory:", job="run")
    ride = next(each for each in trainer.callback_handler.callbacks if type(each).__name__ == "TrimtabCallback")._ride
    ride._metrics = SimpleNamespace(scalars=lambda metrics: metrics["broken"][0])
    trainer.train()
    assert not attachment.attached
    assert "compute_loss" not in vars(trainer)
    assert [record.levelno for record in caplog.records if "detached" in record.getMessage()] == [logging.ERROR]
    assert runs.same(runs.weights(alone), runs.weights(trainer))
