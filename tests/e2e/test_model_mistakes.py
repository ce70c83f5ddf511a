"""What cannot be trained is refused by its field before step 0, or with the reason while the run goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_models import JOB, logged_steps, patch, run_attached, saved_model, stored_summaries, tiny_run

from trimtab.api.service import Service
from trimtab.hooks.controls import ControlError
from trimtab.trainer.config import ConfigError
from trimtab.trainer.run import STEPS
from trimtab.trainer.step_record import StepRecord


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"recipe": "nvfp5"}, r"recipe: 'nvfp5' is none of bf16, fp8-tensor"),
        ({"rollout": {"top_p": 0.9}}, r"rollout.*top_p: 0\.9 renormalises"),
        ({"model": {"path": "/nowhere/at/all"}}, r"model\.path: /nowhere/at/all is no folder"),
        ({"model": {"kind": "decoder"}}, r"task\.kind: 'reasoning_gym' is asked in text"),
        (
            {"recipe": "mxfp8", "model": {"execution": "native"}},
            r"model\.execution: 'native' is refused: format mxfp8 .* asked for by controls\.sampler_format = 'mxfp8'",
        ),
        ({"rollout": {"head": 0}, "controls": {"centering": True}}, r"controls\.centering: .*no sampler head"),
        ({"task": {"dataset": "countdwon"}}, r"task\.dataset: 'countdwon' .*did you mean countdown"),
        ({"task": {"settings": {"min_word_len": 99}}}, r"task\.settings: spell_backward refuses"),
        (
            {"sampler": {"kind": "server", "urls": ["http://127.0.0.1:9"], "retries": 0}},
            r"^sampler\.urls: http://127\.0\.0\.1:9/health failed .*ConnectError.* Start it with python -m trimtab\.",
        ),
        ({"task": {"kind": "questions", "path": "/nowhere.jsonl"}}, r"task\.path: .*/nowhere\.jsonl"),
    ],
)
def test_mistakes_are_refused_by_the_field_before_step_0(
    folder: Callable[[str], Path], tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    data = tiny_run(folder("qwen3"))
    for section, value in changes.items():
        other_kind = isinstance(value, dict) and "kind" in value
        data[section] = {**data.get(section, {}), **value} if isinstance(value, dict) and not other_kind else value
    with pytest.raises(ConfigError, match=told):
        run_attached(data, tmp_path)
    assert not (tmp_path / "out" / STEPS).exists()


def test_a_folder_without_weights_is_refused(folder: Callable[[str], Path], tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "config.json").write_text((folder("qwen3") / "config.json").read_text())
    with pytest.raises(ConfigError, match=r"model\.path: .*empty has no weights \(\*\.safetensors"):
        run_attached(tiny_run(empty), tmp_path)
    assert not (tmp_path / "out" / STEPS).exists()


def test_weights_that_were_cut_short_are_refused(tmp_path: Path) -> None:
    cut = saved_model("llama", tmp_path / "cut")
    weights_file = cut / "model.safetensors"
    weights_file.write_bytes(weights_file.read_bytes()[:5000])
    with pytest.raises(ConfigError, match=r"model\.path: .*cut has weights that cannot be read"):
        run_attached(tiny_run(cut), tmp_path)


def test_a_width_that_does_not_divide_is_refused_with_the_layer(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 260, "hidden_size": 40, "intermediate_size": 64, "num_hidden_layers": 2}
    LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2)).save_pretrained(tmp_path / "odd")
    told = r"controls\.sampler_format: 'nvfp4-46': .*mlp\.gate_proj\.weight: dimension 1 \(in_features\) is 40.*by 16"
    with pytest.raises(ConfigError, match=told):
        run_attached(tiny_run(tmp_path / "odd", recipe="nvfp4-rl"), tmp_path)
    assert not (tmp_path / "out" / STEPS).exists()


def test_centering_asked_of_a_run_without_a_head_is_refused_on_record(
    folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """Asked before the first summary only the trainer can tell that it cannot; after it the agent can."""
    data = tiny_run(folder("llama"), rollout={"prompts": 2, "group_size": 2, "head": 0}, steps=4)
    service = Service.open(tmp_path / "agent.db")
    service.register(JOB, config=None, mode=None, issuer="me", reason="to ask early")
    service.operate(patch({"centering": True}))
    late: list[str] = []

    def ask_again(record: StepRecord) -> None:
        if record.step == 2:
            with pytest.raises(ControlError) as refused:
                service.operate(patch({"centering": True, "clip_low": 0.3}))
            late.append(str(refused.value))

    assert run_attached(data, tmp_path, on_step=ask_again).steps == 4
    service.close()
    reason = "centering: the rollouts record no sampler head (top log-probs), which score centering needs"
    assert late == [reason]
    first, *rest = stored_summaries(tmp_path / "agent.db", JOB)
    assert first.refusals == ()
    assert [summary.refusals for summary in rest] == [(reason,)] * 3
    assert not any(summary.applied.centering for summary in rest)


def test_a_format_that_cannot_run_natively_is_refused_live_and_bf16_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that insists on native FP8, asked for a format without a kernel: the agent and the trainer both say no.

    Of the embedded model, and small, since what a CPU has for FP8 is a loop to compare with.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # of the warm start, though it has no steps
    data = {
        "steps": 5,
        "task": {"digits": 1},
        "model": {"width": 16, "heads": 1, "layers": 1, "hidden": 16, "execution": "native"},
        "warm_start": {"steps": 0},
        "rollout": {"prompts": 2, "group_size": 2, "head": 2},
        "evaluation": {"prompts": 2},
        "controls": {"ratio_reference": "sampler", "sampler_format": "fp8-row", "train_format": "fp8-row"},
    }
    service = Service.open(tmp_path / "agent.db")
    service.register(JOB, config=None, mode=None, issuer="me", reason="to ask early")
    service.operate(patch({"sampler_format": "nvfp4"}))
    late: list[str] = []

    def ask_again(record: StepRecord) -> None:
        if record.step == 2:
            with pytest.raises(ControlError) as refused:
                service.operate(patch({"train_format": "mxfp8"}))
            late.append(str(refused.value))
            service.operate(patch({"sampler_format": None, "train_format": "bf16"}))

    assert run_attached(data, tmp_path, on_step=ask_again).reward_eval_bf16 is not None
    service.close()
    native = "fp32, bf16, fp8-tensor, fp8-tensor-hybrid, fp8-row"
    assert late == [f"train_format: 'mxfp8' is none of {native}"]
    rows = logged_steps(tmp_path / "out")
    assert [row["sampler_engine"] for row in rows] == ["fp8-native"] * 5
    assert [row["train_engine"] for row in rows] == ["fp8-native"] * 4 + ["bf16-emulated"]
    refusals = [summary.refusals for summary in stored_summaries(tmp_path / "agent.db", JOB)]
    assert refusals[0] == refusals[4] == ()
    assert refusals[1] == refusals[2] == (f"sampler_format: 'nvfp4' is none of {native}",)
