"""Recipes on real architectures: which of their layers are quantised, which kept, and that they train."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from trimtab.trainer.models.decoder import DecoderLM, ModelShape
from trimtab.trainer.quant import (
    RECIPES,
    QuantExperts,
    QuantLayer,
    Recipe,
    convert,
    fitting_formats,
    freeze,
    outlier_scales,
    quantised_formats,
    set_backward,
    set_format,
)
from trimtab.trainer.quant.anatomy import decoder_layers

LAYERS, VOCABULARY = 3, 128
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 64,
}
MIXTURE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
TOKENS = torch.arange(24).reshape(2, 12)
ATTENTION = tuple(f"self_attn.{part}_proj" for part in "qkvo")
MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
SHARED = tuple(f"mlp.shared_expert.{part}_proj" for part in ("gate", "up", "down"))


def decoder() -> nn.Module:
    shape = ModelShape(vocabulary=VOCABULARY, max_length=16, width=128, layers=LAYERS, heads=2, hidden=128)
    return DecoderLM(shape)


def qwen3() -> nn.Module:
    return Qwen3ForCausalLM(Qwen3Config(**SIZES, tie_word_embeddings=True))


def llama() -> nn.Module:
    return LlamaForCausalLM(LlamaConfig(**SIZES))


def qwen3_moe() -> nn.Module:
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES, **MIXTURE, mlp_only_layers=[1]))


def qwen2_moe() -> nn.Module:
    sizes = {name: value for name, value in SIZES.items() if name != "head_dim"}
    return Qwen2MoeForCausalLM(Qwen2MoeConfig(**sizes, **MIXTURE, shared_expert_intermediate_size=128))


FAMILIES = (decoder, qwen3, llama, qwen3_moe, qwen2_moe)
EACH_FAMILY = pytest.mark.parametrize("build", FAMILIES, ids=lambda build: build.__name__)


def built(build: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = build()
    for module in model.modules():  # routers start at zero, and with them every expert is as good as another
        if type(module).__name__.endswith("Router"):
            nn.init.normal_(module.weight)
    return model


def layers(*parts: str, of: range = range(LAYERS), prefix: str = "model.layers") -> set[str]:
    return {f"{prefix}.{layer}.{part}" for layer in of for part in parts}


def quantised(model: nn.Module) -> set[str]:
    return {name for name, fmt in quantised_formats(model).items() if fmt != "bf16"}


EVERYTHING = {
    decoder: layers("attention.qkv", "attention.out", "up", "down", prefix="blocks") | {"head"},
    qwen3: layers(*ATTENTION, *MLP) | {"lm_head"},
    llama: layers(*ATTENTION, *MLP) | {"lm_head"},
    qwen3_moe: layers(*ATTENTION) | layers("mlp.experts", of=range(0, 3, 2)) | layers(*MLP, of=range(1, 2))
    | {"lm_head"},
    qwen2_moe: layers(*ATTENTION, "mlp.experts", *SHARED, "mlp.shared_expert_gate") | {"lm_head"},
}  # fmt: skip

TWO = range(2)  # 15 % of three layers is the last one
IN_NVFP4_RL = {
    decoder: layers("up", "down", prefix="blocks", of=TWO),
    qwen3: layers(*MLP, of=TWO),
    llama: layers(*MLP, of=TWO),
    qwen3_moe: layers("mlp.experts", of=range(1)) | layers(*MLP, of=range(1, 2)),
    qwen2_moe: layers("mlp.experts", of=TWO),
}


@EACH_FAMILY
def test_every_layer_is_converted_and_the_head_and_the_routers_are_kept(build):
    model = built(build)
    keys = list(model.state_dict())
    parameters = dict(model.named_parameters())
    assert set(convert(model, Recipe(name="test", format="nvfp4"))) == EVERYTHING[build]
    assert quantised(model) == EVERYTHING[build] - {"head", "lm_head", *layers("mlp.shared_expert_gate")}
    assert list(model.state_dict()) == keys
    assert {name: id(p) for name, p in model.named_parameters()} == {name: id(p) for name, p in parameters.items()}


@EACH_FAMILY
def test_nvfp4_rl_keeps_attention_shared_experts_and_the_last_layers(build):
    model = built(build)
    convert(model, RECIPES["nvfp4-rl"])
    assert quantised(model) == IN_NVFP4_RL[build]
    assert {quantised_formats(model)[name] for name in quantised(model)} == {"nvfp4-46"}


def test_a_tied_head_stays_one_parameter_with_the_embedding():
    model = built(qwen3)
    convert(model, RECIPES["fp8-row"])
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert isinstance(model.lm_head, QuantLayer)
    model(TOKENS, labels=TOKENS).loss.backward()
    assert model.lm_head.weight.grad.abs().sum() > 0


def test_experts_alone_are_quantised_on_demand():
    recipe = Recipe(name="test", format="nvfp4", moe_only=True)
    model = built(qwen3_moe)
    convert(model, recipe)
    assert quantised(model) == layers("mlp.experts", of=range(0, 3, 2))
    model = built(qwen2_moe)
    convert(model, recipe)
    assert quantised(model) == layers("mlp.experts", *SHARED)
    model = built(qwen2_moe)
    convert(model, Recipe(name="test", format="nvfp4", moe_only=True, keep_shared_experts=True))
    assert quantised(model) == layers("mlp.experts")
    with pytest.raises(ValueError, match=r"^moe_only: the model has no experts"):
        convert(built(llama), recipe)


def test_a_router_is_kept_where_it_is_a_linear_layer_and_a_gate_of_a_feed_forward_is_none():
    def mixture() -> nn.Module:
        parts = {name: nn.Linear(32, 32) for name in ("gate", "gate_proj", "down")}
        return nn.ModuleDict(parts | {"experts": nn.ModuleList(nn.Linear(32, 32) for _ in range(2))})

    model = nn.ModuleDict({"layers": nn.ModuleList([mixture(), mixture()]), "gate": nn.Linear(32, 32)})
    convert(model, Recipe(name="test", format="nvfp4"))
    names = ("gate_proj", "down", "experts.0", "experts.1")
    assert quantised(model) == layers(*names, of=TWO, prefix="layers") | {"gate"}


def test_the_head_is_kept_whatever_it_is_called():
    sizes = {name: SIZES[name] for name in ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads")}
    model = GPTNeoXForCausalLM(GPTNeoXConfig(**sizes, num_hidden_layers=2))
    for wrapped in (False, True):
        model: nn.Module = GPTNeoXForCausalLM(GPTNeoXConfig(**sizes, num_hidden_layers=2))
        model = nn.ModuleDict({"causal_lm": model}) if wrapped else model
        convert(model, Recipe(name="test", format="nvfp4", keep_attention=True))
        assert {name.rpartition(".")[2] for name in quantised(model)} == {"dense_h_to_4h", "dense_4h_to_h"}


def test_fused_experts_of_another_layout_are_refused_rather_than_left_out():
    sizes = {name: value for name, value in SIZES.items() if name != "num_hidden_layers"}
    model = GptOssForCausalLM(GptOssConfig(**sizes, num_local_experts=2, num_hidden_layers=2))
    with pytest.raises(ValueError, match=r"^model\.layers\.0\.mlp\.experts: GptOssExperts: cannot be quantised"):
        convert(model, RECIPES["nvfp4-rl"])
    assert not quantised_formats(model)


def test_kept_names_go_with_what_the_recipe_keeps_anyway():
    model = built(llama)
    convert(model, Recipe(name="test", format="mxfp8", keep=("*.0.mlp.*", "*.q_proj"), keep_last=1 / 3))
    assert quantised(model) == layers("self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", of=TWO) | layers(
        *MLP, of=range(1, 2)
    )


@EACH_FAMILY
def test_the_decoder_layers_are_found_by_shape_alone(build):
    model = built(build)
    prefix = "blocks" if build is decoder else "model.layers"
    assert decoder_layers(model) == [f"{prefix}.{layer}" for layer in range(LAYERS)]
    assert decoder_layers(nn.ModuleDict({"wrapped": model})) == [f"wrapped.{prefix}.{i}" for i in range(LAYERS)]


def test_lists_of_experts_inside_the_layers_are_no_decoder_layers():
    def block() -> nn.Module:
        return nn.ModuleDict({"experts": nn.ModuleList(nn.Sequential(nn.Linear(4, 4)) for _ in range(9))})

    assert decoder_layers(nn.ModuleList(block() for _ in range(2))) == ["0", "1"]
    assert decoder_layers(nn.Sequential(nn.ModuleList(nn.Linear(4, 4) for _ in range(3)))) == []
    mixed = nn.ModuleList([block(), nn.Sequential(block())])
    assert decoder_layers(mixed) == []


@EACH_FAMILY
@pytest.mark.parametrize("name", RECIPES)
def test_every_preset_trains_every_family(build, name):
    model = built(build)
    convert(model, RECIPES[name])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        logits = model(TOKENS) if build is decoder else model(TOKENS).logits
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), TOKENS[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[2] < losses[0]


@pytest.mark.parametrize("name", ["fp8-tensor", "fp8-row", "fp8-block"])
def test_a_width_of_four_and_a_half_blocks_trains_in_fp8(name):
    """SmolLM2-135M's sizes, with fewer layers and words."""
    sizes = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, num_hidden_layers=1, tie_word_embeddings=True, **sizes))
    convert(model, RECIPES[name])
    assert name in fitting_formats(model)
    assert "nvfp4" in fitting_formats(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        loss = model(TOKENS, labels=TOKENS).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[2] < losses[0]


def test_what_changes_live_reaches_linear_layers_and_experts_alike():
    model = built(qwen2_moe).eval()
    convert(model, RECIPES["nvfp4-rl"])
    found = [layer for layer in model.modules() if isinstance(layer, QuantLayer)]
    assert any(isinstance(layer, QuantExperts) for layer in found)
    assert "fp8-block" in fitting_formats(model)
    set_format(model, "fp8-block")
    assert {layer.format.name for layer in found} == {"bf16", "fp8-block"}
    assert {layer.format.name for layer in found if layer.kept} == {"bf16"}
    set_backward(model, "high_precision")
    assert {layer.backward_mode for layer in found} == {"high_precision"}
    with torch.no_grad():
        unfrozen = model(TOKENS).logits
        freeze(model)
        assert all(layer.frozen for layer in found)
        assert torch.equal(model(TOKENS).logits, unfrozen)
        chosen = outlier_scales(model, ["*.experts"], channels=2, scale=32.0, seed=1)
        assert list(chosen) == [f"model.layers.{layer}.mlp.experts" for layer in range(LAYERS)]
        assert not torch.equal(model(TOKENS).logits, unfrozen)


def test_an_expert_that_does_not_divide_into_blocks_is_named_with_its_parameter():
    sizes = SIZES | MIXTURE | {"moe_intermediate_size": 24}
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes))
    message = r"^model\.layers\.0\.mlp\.experts\.down_proj: dimension 1 \(in_features\) is 24, not divisible by 16"
    with pytest.raises(ValueError, match=message):
        convert(model, Recipe(name="test", format="nvfp4"))
    assert not quantised_formats(model)
    convert(model, Recipe(name="test", format="fp8-row"))
    assert "nvfp4" not in fitting_formats(model)
    with pytest.raises(ValueError, match=message):
        set_format(model, "nvfp4")
    assert set(quantised_formats(model).values()) == {"bf16", "fp8-row"}
