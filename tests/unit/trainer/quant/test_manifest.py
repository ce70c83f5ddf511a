"""What a converted model says of its weights, and that two models that differ are told apart tensor by tensor."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from trimtab.hooks.contract import TensorContract, contract_differences, report
from trimtab.trainer.quant import FORMATS, RECIPES, convert, manifest, set_format

BF16 = TensorContract(format="bf16", scale_mode="none", tie_rule="none", quantised=False)


def mixture() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 32, "moe_intermediate_size": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
    config = Qwen3MoeConfig(**sizes, **heads, num_hidden_layers=2, num_experts=2, num_experts_per_tok=1)
    return Qwen3MoeForCausalLM(config)


def test_every_weight_of_a_matmul_is_listed_under_its_parameter_name():
    model = mixture()
    convert(model, RECIPES["nvfp4-rl"])
    found = manifest(model)
    nvfp4 = TensorContract(
        format="nvfp4-46",
        scale_mode="e4m3 block 16, bound 256, float32 per token activations, per tensor weights",
        tie_rule="mse, ties to 6",
        quantised=True,
    )
    quantised = {f"model.layers.0.mlp.experts.{part}": nvfp4 for part in ("gate_up_proj", "down_proj")}
    kept = {f"model.layers.1.mlp.experts.{part}" for part in ("gate_up_proj", "down_proj")} | {"lm_head.weight"}
    kept |= {f"model.layers.{layer}.self_attn.{part}_proj.weight" for layer in (0, 1) for part in "qkvo"}
    assert found == quantised | dict.fromkeys(kept, BF16)
    assert found.keys() <= dict(model.named_parameters()).keys()


@pytest.mark.parametrize("name", FORMATS)
def test_high_precision_formats_alone_do_not_count_as_quantised(name):
    model = nn.Sequential(nn.Linear(128, 128))
    convert(model, replace(RECIPES["bf16"], format=name))
    (contract,) = manifest(model).values()
    assert contract.format == name
    assert contract.quantised == (name not in ("fp32", "bf16"))


def test_one_recipe_on_both_sides_agrees_and_another_is_told_by_tensor():
    trainer, sampler = mixture(), mixture()
    convert(trainer, RECIPES["nvfp4-rl"])
    convert(sampler, RECIPES["nvfp4-rl"])
    assert contract_differences(manifest(trainer), manifest(sampler)) == ()
    set_format(sampler, "bf16")
    assert report(contract_differences(manifest(trainer), manifest(sampler))) == (
        "2 tensors are NVFP4-46 in the trainer but BF16 in the sampler: "
        "model.layers.0.mlp.experts.down_proj, model.layers.0.mlp.experts.gate_up_proj."
    )


def test_a_model_that_was_not_converted_has_no_manifest():
    with pytest.raises(ValueError, match=r"model: has no quantised layers; convert it first"):
        manifest(mixture())
