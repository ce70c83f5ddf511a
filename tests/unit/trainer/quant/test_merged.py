"""Layers that serving engines merge: one scale for all of their weights, as if they had been quantised as one."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DeepseekV3Config, LlamaConfig, LlamaForCausalLM
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

from trimtab.hooks.contract import contract_differences, report
from trimtab.trainer.models.decoder import DecoderLM, ModelShape
from trimtab.trainer.quant import (
    FORMATS,
    QuantLayer,
    QuantLinear,
    Recipe,
    convert,
    freeze,
    manifest,
    set_execution,
    set_format,
)
from trimtab.trainer.quant.format import absolute_maximum

WIDE = [name for name, fmt in FORMATS.items() if fmt.tensor_wide]
K, GATE = 64, 48


class Mlp(nn.Module):
    """Gate and up of different magnitudes, so that the scale of one would be wrong for the other."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.up_proj, self.gate_proj = nn.Linear(K, GATE), nn.Linear(K, GATE, bias=False)
        self.down_proj = nn.Linear(GATE, K)
        with torch.no_grad():
            self.gate_proj.weight.copy_(torch.randn(GATE, K, generator=generator))
            self.up_proj.weight.copy_(torch.randn(GATE, K, generator=generator) * 0.037)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def converted(name: str, seed: int = 0, **fields: object) -> Mlp:
    mlp = Mlp(seed)
    convert(mlp, Recipe(name="test", format=name, **fields))
    return mlp


def inputs(seed: int = 0) -> Tensor:
    return torch.randn(5, K, generator=torch.Generator().manual_seed(100 + seed))


def together(mlp: Mlp) -> tuple[Tensor, Tensor]:
    """Gate and up, quantised as one matrix."""
    fmt = mlp.gate_proj.format
    seen = [
        layer.weight.detach() / (1.0 if layer.input_scale is None else layer.input_scale)
        for layer in (mlp.gate_proj, mlp.up_proj)
    ]
    gate, up = fmt.fake(torch.cat(seen), "weight").split(GATE)
    return gate.clone(), up.clone()


def check_together(mlp: Mlp, seed: int = 0) -> None:
    x = inputs(seed)
    for layer, weight in zip((mlp.gate_proj, mlp.up_proj), together(mlp), strict=True):
        scaled = x if layer.input_scale is None else x * layer.input_scale
        expected = F.linear(layer.format.fake(scaled, "activation"), weight, layer.bias)
        if layer.format.short_accumulator:
            torch.testing.assert_close(layer(x), expected, rtol=1e-3, atol=1e-2)
        else:
            assert torch.equal(layer(x), expected)


def test_formats_with_a_scale_for_the_whole_weight_say_so():
    tensor = [name for name in FORMATS if name.startswith("fp8-tensor")]
    assert [*tensor, "nvfp4", "nvfp4-46", "nvfp4-46-mae", "nvfp4-pretrain"] == WIDE
    for name, fmt in FORMATS.items():
        weight = torch.randn(256, 128, generator=torch.Generator().manual_seed(1))
        larger = weight.clone()
        larger[0, 0] = 1000.0
        elsewhere = torch.equal(fmt.fake(weight, "weight")[128:], fmt.fake(larger, "weight")[128:])
        assert elsewhere != (name in WIDE)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", WIDE)
def test_gate_and_up_are_quantised_as_one_matrix(name, seed):
    mlp = converted(name, seed)
    check_together(mlp, seed)
    apart = FORMATS[name].fake(mlp.up_proj.weight.detach(), "weight")
    assert not torch.equal(together(mlp)[1], apart)
    with torch.no_grad():
        check_together(mlp, seed)
    mlp.gate_proj.set_input_scale(torch.exp2(torch.arange(K) % 5.0))
    check_together(mlp, seed)
    mlp.up_proj.set_input_scale(torch.exp2(-(torch.arange(K) % 9.0)))
    check_together(mlp, seed)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", WIDE)
def test_the_quantiser_takes_the_largest_magnitude_of_the_whole(name, seed, kernels):
    """With and without the compiled kernels, over all magnitudes and with values that are none."""
    generator = torch.Generator().manual_seed(seed)
    fmt = FORMATS[name]
    normal = torch.randn(96, 64, generator=generator)
    rows = normal * torch.exp2(torch.randint(-70, 60, (96, 1), generator=generator).float())
    infinite = normal.clone()
    infinite[80, 3] = -torch.inf
    for x in (normal, rows, infinite, torch.zeros(96, 64)):
        amax = absolute_maximum(x)
        largest = max(abs(value) for value in x.flatten().tolist())
        assert torch.equal(amax, torch.tensor([[largest]])) or (largest == float("inf") and amax.isnan().all())
        whole = fmt.fake(x, "weight")
        for part, expected in zip(x.split([32, 64]), whole.split([32, 64]), strict=True):
            quantised = fmt.quantize(part, "weight", amax)
            found = fmt.fake(part, "weight", amax) if kernels else fmt.dequantize(quantised, "weight")
            assert torch.equal(found.nan_to_num(9.0), expected.nan_to_num(9.0))
            assert torch.equal(found.isnan(), expected.isnan())


def test_a_largest_magnitude_that_has_no_place_is_refused():
    one = torch.ones(1, 1)
    for call in (FORMATS["nvfp4"].fake, FORMATS["nvfp4"].quantize):
        with pytest.raises(ValueError, match="amax: nvfp4 takes none for a activation; leave it out"):
            call(torch.ones(16, 16), "activation", one)
    with pytest.raises(ValueError, match="amax: mxfp8 takes none for a weight"):
        FORMATS["mxfp8"].fake(torch.ones(32, 32), "weight", one)
    with pytest.raises(ValueError, match=r"amax: torch\.float32 \[1\] is not torch\.float32 \[1, 1\]"):
        FORMATS["fp8-tensor"].quantize(torch.ones(2, 2), "weight", torch.ones(1))


@pytest.mark.parametrize("name", WIDE)
def test_a_value_that_is_not_finite_poisons_all_that_was_merged(name):
    mlp = converted(name)
    with torch.no_grad():
        mlp.up_proj.weight[0, 0] = torch.nan
    assert mlp.gate_proj(inputs()).isnan().all()


@pytest.mark.parametrize("change", ["step", "copy", "load", "rescale", "refreeze", "format"])
@pytest.mark.parametrize("name", ["fp8-tensor", "nvfp4-46"])
def test_a_frozen_weight_is_quantised_again_when_a_partner_changes(name, change):
    mlp, x = converted(name), inputs()
    freeze(mlp)
    before = mlp.up_proj(x)
    check_together(mlp)
    kept = mlp.up_proj._cached[0]
    assert torch.equal(mlp.up_proj(x), before)
    assert mlp.up_proj._cached[0] is kept
    gate = mlp.gate_proj
    if change == "step":
        gate(x).sum().backward()
        torch.optim.SGD([gate.weight], lr=30.0).step()
    elif change == "copy":
        with torch.no_grad():
            gate.weight.copy_(gate.weight * 3)
    elif change == "load":
        gate.load_state_dict({"weight": gate.weight * 5})
    elif change == "rescale":
        gate.set_input_scale(torch.exp2(torch.arange(K) % 5.0))
    elif change == "refreeze":
        gate.weight.data.mul_(7)  # not counted by torch
        gate.freeze()
    else:
        gate.format = FORMATS["fp8-row"]
        expected = FORMATS[name].fake(mlp.up_proj.weight.detach(), "weight")
        expected = F.linear(FORMATS[name].fake(x, "activation"), expected, mlp.up_proj.bias)
        assert torch.equal(mlp.up_proj(x), expected)
        gate.format = FORMATS[name]
        assert torch.equal(mlp.up_proj(x), before)
        return
    assert not torch.equal(mlp.up_proj(x), before)
    check_together(mlp)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", ["fp8-tensor", "nvfp4"])
def test_a_copy_shares_its_scale_with_the_copies_alone(name, frozen):
    model = nn.ModuleDict({"mlp": converted(name)})
    if frozen:
        freeze(model)
    x = inputs()
    before = model["mlp"].up_proj(x)
    copied = copy.deepcopy(model)
    for mlp in (model["mlp"], copied["mlp"]):
        for layer in (mlp.gate_proj, mlp.up_proj):
            assert list(layer.sharing.values()) == [mlp.gate_proj, mlp.up_proj]
    assert list(copied.state_dict()) == list(nn.ModuleDict({"mlp": Mlp()}).state_dict())
    assert [n for n, _ in copied.named_modules()] == [n for n, _ in nn.ModuleDict({"mlp": Mlp()}).named_modules()]
    with torch.no_grad():
        model["mlp"].gate_proj.weight.mul_(3)
    assert torch.equal(copied["mlp"].up_proj(x), before)
    assert not torch.equal(model["mlp"].up_proj(x), before)
    with torch.no_grad():
        copied["mlp"].gate_proj.weight.mul_(0.1)
    for mlp in (model["mlp"], copied["mlp"]):
        check_together(mlp)


@pytest.mark.parametrize("name", ["fp8-tensor", "nvfp4", "nvfp4-pretrain"])
def test_the_quantised_way_back_multiplies_the_same_scale(name):
    mlp, fmt, x = converted(name, backward="quantized"), FORMATS[name], inputs().requires_grad_()
    grad = torch.randn(5, GATE, generator=torch.Generator().manual_seed(3))
    torch.manual_seed(0)
    mlp.up_proj(x).backward(grad)
    both = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]).detach()
    weight_t = fmt.fake(both.t().contiguous(), "weight")[:, GATE:]
    torch.manual_seed(0)
    expected = fmt.fake(grad, "gradient") @ weight_t.t()
    torch.testing.assert_close(x.grad, expected, rtol=1e-5, atol=1e-6)


def test_native_codes_share_the_scale_too():
    mlp = converted("fp8-tensor")
    emulated = copy.deepcopy(mlp)
    set_execution(mlp, "native")
    with torch.no_grad():
        torch.testing.assert_close(mlp.up_proj(inputs()), emulated.up_proj(inputs()), rtol=1e-5, atol=1e-6)
        mlp.up_proj.freeze()
        mlp.up_proj(inputs())
    codes, amax = mlp.up_proj._cached[0][1]
    assert torch.equal(codes.scale, mlp.gate_proj.weight.detach().abs().max().view(1, 1) / 448)
    assert torch.equal(amax, mlp.gate_proj.weight.detach().abs().max().view(1, 1))


def llama() -> nn.Module:
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    sizes = {"vocab_size": 32, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads))


def shared(model: nn.Module) -> dict[str, list[str]]:
    return {n: list(m.sharing) for n, m in model.named_modules() if isinstance(m, QuantLayer) and m.sharing}


def test_attention_and_feed_forward_share_within_a_layer_while_all_parts_are_in_one_format():
    model = llama()
    attention, feed_forward = ["q_proj", "k_proj", "v_proj"], ["gate_proj", "up_proj"]
    groups = {"self_attn": attention, "mlp": feed_forward}
    everything = {
        f"model.layers.{i}.{where}.{part}": parts for i in (0, 1) for where, parts in groups.items() for part in parts
    }
    convert(model, Recipe(name="test", format="nvfp4"))
    assert shared(model) == everything
    q, k, v = (getattr(model.model.layers[1].self_attn, part) for part in attention)
    whole = FORMATS["nvfp4"].fake(torch.cat([q.weight, k.weight, v.weight]).detach(), "weight")
    x = inputs()
    assert torch.equal(k(x), F.linear(FORMATS["nvfp4"].fake(x, "activation"), whole[64:96].clone()))
    for name in FORMATS:
        set_format(model, name)
        assert shared(model) == (everything if name in WIDE else {})
    model = llama()
    convert(model, Recipe(name="test", format="nvfp4", keep=("*.0.*.k_proj", "*.up_proj")))
    assert shared(model) == {f"model.layers.1.self_attn.{part}": attention for part in attention}
    model = llama()
    convert(model, Recipe(name="test", format="fp8-row", keep=("*.0.*", "*.up_proj"), keep_format="fp8-tensor"))
    assert shared(model) == {name: parts for name, parts in everything.items() if ".0." in name}


def test_compressed_attention_shares_what_it_compresses_and_layers_of_other_inputs_share_nothing():
    attention = DeepseekV3Attention(DeepseekV3Config(hidden_size=64, num_attention_heads=2, q_lora_rank=32), 0)
    convert(attention, Recipe(name="test", format="nvfp4"))
    both = ["q_a_proj", "kv_a_proj_with_mqa"]
    assert shared(attention) == dict.fromkeys(both, both)
    crossed = nn.ModuleDict({"q_proj": nn.Linear(32, 64), "k_proj": nn.Linear(64, 64), "v_proj": nn.Linear(64, 64)})
    convert(crossed, Recipe(name="test", format="nvfp4"))
    assert shared(crossed) == {}


def test_a_decoder_that_is_merged_already_shares_nothing():
    model = DecoderLM(ModelShape(vocabulary=32, max_length=8, width=32, layers=2, heads=2, hidden=32))
    convert(model, Recipe(name="test", format="nvfp4-46"))
    assert not any(layer.merged for layer in model.modules() if isinstance(layer, QuantLinear))


def test_a_contract_tells_a_scale_that_is_shared_from_one_that_is_not():
    ours, theirs = llama(), llama()
    for model in (ours, theirs):
        convert(model, Recipe(name="test", format="fp8-tensor", keep=("*.1.*",)))
    assert contract_differences(manifest(ours), manifest(theirs)) == ()
    found = manifest(ours)
    assert found["model.layers.0.mlp.up_proj.weight"].scale_mode == "float32 per tensor shared by gate_proj, up_proj"
    assert found["model.layers.0.mlp.down_proj.weight"].scale_mode == "float32 per tensor"
    assert found["model.layers.1.mlp.up_proj.weight"].scale_mode == "none"
    for part in (theirs.model.layers[0].mlp.gate_proj, theirs.model.layers[0].mlp.up_proj):
        part.merged = {}
    assert report(contract_differences(manifest(ours), manifest(theirs))) == (
        "2 tensors have scale_mode 'float32 per tensor shared by gate_proj, up_proj' in the trainer but "
        "'float32 per tensor' in the sampler: model.layers.0.mlp.gate_proj.weight, model.layers.0.mlp.up_proj.weight."
    )
