"""What a serving engine is told of a model, and what becomes of its answers; no engine is needed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_runs import PAD, PROMPTS, run_of, settings, shaken, update
from tiny_models import saved_model, tiny_run

from trimtab.trainer.config import ConfigError, RunConfig, validated
from trimtab.trainer.engines import capabilities, check_fits, converted
from trimtab.trainer.models.huggingface import HuggingFaceLM, load_model
from trimtab.trainer.rollouts.build import build_sampler
from trimtab.trainer.rollouts.probe import Probe
from trimtab.trainer.rollouts.sampler import SyncError
from trimtab.trainer.rollouts.served import Answer, assembled, quantisation


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_model("qwen3", tmp_path_factory.mktemp("served") / "model")


def engine(folder: Path, number_format: str = "nvfp4", **model: object) -> HuggingFaceLM:
    converted_model = converted(load_model(folder), run_of(folder, **model), number_format)
    assert isinstance(converted_model, HuggingFaceLM)
    return converted_model


def test_the_engine_is_told_every_layer_its_format_and_what_is_kept(folder: Path) -> None:
    told = quantisation(engine(folder, keep=["*.layers.1.*"]))
    assert told["quant_method"] == "trimtab"
    assert told["format"] == "nvfp4"
    assert told["kept"]["lm_head"] == told["kept"]["model.layers.1.self_attn.q_proj"] == "bf16"
    assert sorted(told["quantised"]) == sorted(
        [f"model.layers.0.self_attn.{name}_proj" for name in "qkvo"]
        + [f"model.layers.0.mlp.{name}_proj" for name in ("gate", "up", "down")]
    )


def test_a_merged_layer_of_which_a_part_is_kept_is_refused_with_its_name(folder: Path) -> None:
    config = validated(
        {
            **tiny_run(folder),
            "model": {"kind": "huggingface", "path": str(folder), "tokenizer": "characters", "keep": ["*.0.*.k_proj"]},
            "sampler": settings().model_dump(),
        }
    )
    with pytest.raises(ConfigError) as told:
        build_sampler(config, load_model(folder), end=1, pad=0)
    assert str(told.value) == (
        "model.keep: vLLM multiplies by q_proj, k_proj, v_proj of model.layers.0.self_attn in one go, and only k_proj "
        "is kept; keep all of them or none, or use kind = 'torch'"
    )


def test_experts_are_refused(tmp_path: Path) -> None:
    model = engine(saved_model("qwen3_moe", tmp_path / "model"))
    with pytest.raises(ValueError, match=r"model.path: model.layers.0.mlp.experts holds experts"):
        quantisation(model)


def test_without_vllm_a_run_says_how_to_install_it(folder: Path) -> None:
    if importlib.util.find_spec("vllm") is not None:
        pytest.skip("vLLM is installed here")
    config = validated({**tiny_run(folder), "sampler": settings().model_dump()})
    with pytest.raises(ConfigError, match=r"sampler.kind: 'vllm' needs vLLM: on a machine without a GPU, `make vllm`"):
        build_sampler(config, load_model(folder), end=1, pad=0)


def test_a_served_cache_keeps_its_format_from_the_start(folder: Path) -> None:
    data = {**tiny_run(folder), "sampler": settings().model_dump(), "controls": {"kv_format": "fp8"}}
    model = load_model(folder)
    check_fits(validated(data), model)
    assert capabilities(validated(data), model).controls["kv_format"] == "restart"
    changed = validated({**data, "schedule": [{"step": 1, "controls": {"kv_format": "none"}}]})
    with pytest.raises(ConfigError, match=r"controls.kv_format: restart in this trainer \(at step 1\)"):
        check_fits(changed, model)


def test_responses_are_padded_and_each_token_has_the_version_that_sampled_it() -> None:
    answers = [
        Answer(
            tokens=np.arange(count),
            logprobs=-np.arange(count, dtype=np.float32),
            head_ids=np.full((count, 2), 7),
            head_logprobs=np.full((count, 2), -0.5, dtype=np.float32),
            versions=[(4, 0), (6, 2)] if count == 4 else [(4, 0)],
        )
        for count in (4, 1, 2)
    ]
    rollout = assembled(PROMPTS, answers, length=5, head=2, pad=PAD, engine="nvfp4-emulated")
    assert rollout.responses.tolist() == [[0, 1, 2, 3, PAD], [0] + [PAD] * 4, [0, 1] + [PAD] * 3]
    assert rollout.versions.tolist() == [[4, 4, 6, 6, 6], [4] * 5, [4] * 5]
    assert rollout.logprobs[0].tolist() == [0, -1, -2, -3, 0]
    assert rollout.head_ids[1, :, 0].tolist() == [7, 0, 0, 0, 0]
    assert rollout.entropy is None


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("number_format", ["fp32", "nvfp4"])
def test_the_probe_tells_rounding_from_other_weights(folder: Path, dtype: str, number_format: str, exact: bool) -> None:
    model = engine(folder)
    probe, weights = Probe(model, dtype=dtype), load_model(folder).state_dict()
    expected = probe.expected(update(weights, 1, number_format), exact=exact)
    within = 0.9 * expected.tolerances[0]
    assert expected.check(expected.logprobs[0] + within) == pytest.approx(within, rel=0.1)
    with pytest.raises(SyncError, match=r"after taking over version 1 it does not compute with these weights"):
        expected.check(probe.expected(update(shaken(weights, 2.0), 2, number_format), exact=exact).logprobs[0])
    with pytest.raises(SyncError, match="nan nats off"):
        expected.check(expected.logprobs[0] * torch.nan)


def test_in_float32_the_probe_sees_less_than_rounding_in_the_format_hides(folder: Path) -> None:
    model = engine(folder, keep=["*.layers.1.*"])
    probe, now = Probe(model, dtype="float32"), update(load_model(folder).state_dict(), 1, "fp8-row")
    exact, live = probe.expected(now, exact=True), probe.expected(now)
    assert exact.tolerances[0] < 1e-4 < 1e-3 < live.tolerances[0]
    plain = load_model(folder)
    with torch.no_grad():
        log_p = torch.log_softmax(plain.eval()(torch.tensor([probe.tokens]))[0, :-1], -1)
    reference = log_p.gather(1, torch.tensor(probe.tokens[1:])[:, None])[:, 0]
    assert torch.allclose(exact.logprobs[0], reference, atol=1e-5), "a layer that is kept in BF16 is float32 too"
    formats = {name: entry.format for name, entry in probe.contract().items()}
    assert {formats["causal_lm.model.layers.0.mlp.up_proj.weight"], formats["causal_lm.lm_head.weight"]} == {
        "fp8-row",
        "bf16",
    }


def test_the_probe_is_the_trainers_forward_pass(folder: Path) -> None:
    model = engine(folder, "fp8-row")
    probe, weights = Probe(model, dtype="float32"), shaken(load_model(folder).state_dict())
    model.load_state_dict(weights)
    with torch.no_grad():
        log_p = torch.log_softmax(model.eval()(torch.tensor([probe.tokens]))[0, :-1], -1)
    expected = log_p.gather(1, torch.tensor(probe.tokens[1:])[:, None])[:, 0]
    (logprobs,) = probe.expected(update(weights, 1, "fp8-row")).logprobs
    assert torch.allclose(logprobs, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"sampler": {"kind": "vllm"}}, "sampler.kind: 'vllm' serves Hugging Face models, and model.kind is 'decoder'"),
        ({"sampler": {"kind": "server", "urls": []}}, "sampler.urls: "),
        ({"sampler": {"kind": "server", "urls": ["localhost:8000"]}}, "sampler.urls: 'localhost:8000' is no http"),
        ({"sampler": {"kind": "vllm", "max_num_seqs": 0}}, "sampler.max_num_seqs: "),
        ({"sampler": {"kind": "sglang"}}, "sampler: "),
    ],
)
def test_a_sampler_that_cannot_be_is_refused_with_the_field(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        validated(changes)


def test_outliers_are_for_the_trainers_own_sampler(folder: Path) -> None:
    data = {**tiny_run(folder), "sampler": {"kind": "vllm"}, "outliers": {"channels": 2, "layers": ["*.q_proj"]}}
    with pytest.raises(ConfigError, match=r"outliers.channels: 2 are injected in the trainer's own sampler only"):
        validated(data)
    assert isinstance(validated({**data, "sampler": {"kind": "torch"}}), RunConfig)
