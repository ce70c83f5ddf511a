"""Conversion of any model, in place, and what may be changed afterwards."""

from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from trimtab.hooks.controls import Backward
from trimtab.trainer.quant import (
    FORMATS,
    QuantLayer,
    QuantLinear,
    Recipe,
    convert,
    engine_of,
    fitting_formats,
    freeze,
    outlier_scales,
    quantised_formats,
    set_backward,
    set_execution,
    set_format,
)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 64, bias=False)
        self.down = nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    """With a tied head, a block used twice, and a linear layer registered under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 32)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.experts = nn.ModuleDict({"a": nn.Linear(32, 32), "b": nn.Linear(32, 32)})
        self.shared = self.experts["a"]
        self.head = nn.Linear(32, 16, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.shared(x) + self.experts["b"](x))


NAMES = ["blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down", "experts.a", "experts.b", "head"]
TOKENS = torch.arange(16).reshape(2, 8)


def recipe(number_format: str, **fields: object) -> Recipe:
    return Recipe(name="test", format=number_format, **fields)  # type: ignore[arg-type]


def formats(number_format: str, **others: str) -> dict[str, str]:
    return dict.fromkeys(NAMES, number_format) | {"head": "bf16"} | others


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model()


def test_every_linear_is_swapped_and_keeps_its_parameters(model):
    parameters = dict(model.named_parameters())
    keys = list(model.state_dict())
    assert convert(model, recipe("nvfp4")) == NAMES
    assert not [m for m in model.modules() if isinstance(m, nn.Linear)]
    assert list(model.state_dict()) == keys
    assert all(model.get_parameter(name) is parameter for name, parameter in parameters.items())
    assert model.head.weight is model.embedding.weight
    assert model.shared is model.experts["a"]
    assert quantised_formats(model) == formats("nvfp4")


def test_an_optimizer_made_before_trains_the_converted_model(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    convert(model, recipe("nvfp4-46"))
    losses = []
    for _ in range(30):
        loss = nn.functional.cross_entropy(model(TOKENS).flatten(0, 1), TOKENS.flatten().roll(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_fp32_leaves_the_function_alone_and_formats_switch_live(model):
    plain = model(TOKENS)
    convert(model, recipe("fp32", keep_format="fp32"))
    assert torch.equal(model(TOKENS), plain)
    outlier_scales(model, ["blocks.*.up"], channels=2, scale=16.0, seed=0)
    assert torch.equal(model(TOKENS), plain)
    set_format(model, "nvfp4")
    low = model(TOKENS)
    assert not torch.equal(low, plain)
    set_format(model, "fp32")
    assert torch.equal(model(TOKENS), plain)
    set_format(model, "nvfp4")
    assert torch.equal(model(TOKENS), low)


def test_kept_layers_stay_in_their_format(model):
    convert(model, recipe("nvfp4", keep=("experts.*",), keep_format="fp32"))
    set_format(model, "mxfp8")
    kept = {name: "fp32" for name in NAMES if name.startswith(("head", "experts"))}
    assert quantised_formats(model) == dict.fromkeys(NAMES, "mxfp8") | kept


def test_the_head_is_quantised_where_it_is_not_kept_and_stays_tied(model):
    convert(model, recipe("fp8-row", keep_head=False))
    assert quantised_formats(model) == dict.fromkeys(NAMES, "fp8-row")
    assert model.head.weight is model.embedding.weight
    outputs = {}
    model.head.register_forward_hook(lambda head, args, y: outputs.update({head.format.name: (args[0], y)}))
    for name in ("fp8-row", "bf16"):
        set_format(model, name)
        model(TOKENS)
    for name, (x, y) in outputs.items():
        fmt = FORMATS[name]
        expected = fmt.fake(x.detach(), "activation") @ fmt.fake(model.embedding.weight.detach(), "weight").t()
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    convert(twin := Model(), recipe("fp8-row", keep_head=False, keep=("head",)))
    assert quantised_formats(twin) == formats("fp8-row")


def test_a_pattern_is_compared_with_the_whole_name_not_a_part_of_it():
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(12)))
    convert(model, recipe("nvfp4", keep=("1",)))
    assert [name for name, fmt in quantised_formats(model).items() if fmt == "bf16"] == ["1"]


def test_a_kept_layer_may_have_a_shape_that_the_format_refuses():
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 5), nn.Linear(5, 5))
    with pytest.raises(ValueError, match=r"^2\.weight: dimension 1 \(in_features\) is 5, not divisible by 16"):
        convert(model, recipe("nvfp4"))
    assert [type(m) for m in model] == [nn.Linear] * 3
    assert convert(model, recipe("nvfp4", keep=("2",))) == ["0", "1", "2"]


@pytest.mark.parametrize("backward", get_args(Backward))
def test_the_backward_mode_reaches_every_layer_and_switches_live(model, backward):
    def modes() -> set[str]:
        return {layer.backward_mode for layer in model.modules() if isinstance(layer, QuantLayer)}

    convert(model, recipe("nvfp4", backward=backward))
    assert modes() == {backward}
    for other in get_args(Backward):
        set_backward(model, other)
        assert modes() == {other}
        model(TOKENS).sum().backward()


def test_execution_reaches_the_layers_that_were_not_kept_and_the_engine_is_labelled(model):
    convert(model, recipe("nvfp4"))
    assert engine_of(model) == "nvfp4-emulated"
    set_execution(model, "native")
    assert model.head.execution == "auto"
    with pytest.raises(ValueError, match=r"^blocks\.0\.up: execution: 'native' is refused: format nvfp4 has no native"):
        engine_of(model)
    set_format(model, "fp8-row")
    assert engine_of(model) == "fp8-native"
    assert torch.isfinite(model(TOKENS[:, :2])).all()
    model.blocks[1].up.execution = "emulated"
    assert engine_of(model) == "fp8-emulated+fp8-native"


def test_subclasses_of_linear_are_left_to_the_module_that_reads_them():
    model = nn.Sequential(nn.MultiheadAttention(32, 4), nn.Linear(32, 32))
    assert convert(model, recipe("nvfp4")) == ["1"]


def test_set_format_checks_every_layer_before_it_changes_one(model):
    model.experts["b"] = nn.Linear(36, 32)
    convert(model, recipe("fp32"))
    with pytest.raises(ValueError, match=r"experts\.b\.weight: dimension 1 \(in_features\) is 36, not divisible by 16"):
        set_format(model, "nvfp4")
    assert quantised_formats(model) == formats("fp32")


def test_fitting_formats_are_those_that_set_format_takes(model):
    model.experts["b"] = nn.Linear(48, 32)
    convert(model, recipe("fp32"))
    assert fitting_formats(model) == tuple(name for name in FORMATS if not name.startswith("mxfp8"))
    for name in fitting_formats(model):
        set_format(model, name)
    set_format(model, "fp32")
    assert fitting_formats(nn.Linear(16, 16)) == ()


def test_freeze_reaches_every_layer(model):
    convert(model, recipe("nvfp4"))
    layers = [m for m in model.modules() if isinstance(m, QuantLinear)]
    with torch.no_grad():
        expected = model(TOKENS)
        freeze(model)
        assert torch.equal(model(TOKENS), expected)
    assert all(layer.frozen for layer in layers)


def test_outlier_channels_come_from_the_seed_alone(model):
    convert(model, recipe("nvfp4"))
    chosen = outlier_scales(model, ["blocks.*.up", "head"], channels=3, scale=8.0, seed=5)
    assert list(chosen) == ["blocks.0.up", "blocks.1.up", "head"]
    assert chosen["blocks.0.up"] != chosen["blocks.1.up"]
    for name, channels in chosen.items():
        scale = model.get_submodule(name).input_scale
        assert scale.nonzero().numel() == 32
        assert (scale == 8.0).nonzero().flatten().tolist() == channels
        assert len(channels) == 3
    torch.rand(7)
    assert outlier_scales(model, ["blocks.*.up", "head"], channels=3, scale=8.0, seed=5) == chosen
    assert outlier_scales(model, ["blocks.*.up", "head"], channels=3, scale=8.0, seed=6) != chosen
    assert model.get_submodule("blocks.0.down").input_scale is None


def test_errors_name_the_field_the_value_and_the_choice(model):
    layers = r"blocks\.\*\.up, blocks\.\*\.down, experts\.a, experts\.b, head$"
    with pytest.raises(ValueError, match=rf"keep: 'lm_head' matches no layer; the layers are {layers}"):
        convert(model, recipe("nvfp4", keep=("lm_head",)))
    with pytest.raises(ValueError, match=r"keep: 'head' is one string; give a sequence"):
        convert(model, recipe("nvfp4", keep="head"))
    with pytest.raises(ValueError, match=r"moe_only: the model has no experts"):
        convert(nn.Sequential(nn.Linear(16, 16)), recipe("nvfp4", moe_only=True))
    with pytest.raises(ValueError, match=r"keep_last: 0\.1 of no decoder layers"):
        convert(nn.Sequential(nn.Linear(16, 16)), recipe("nvfp4", keep_last=0.1))
    with pytest.raises(ValueError, match=r"recipe: 'test' keeps every layer of the model"):
        convert(model, recipe("nvfp4", keep=("*",)))
    with pytest.raises(ValueError, match=r"model: is itself the layer \(Linear\), which cannot be swapped"):
        convert(nn.Linear(16, 16), recipe("nvfp4"))
    with pytest.raises(ValueError, match=r"model: no nn\.Linear and no fused experts"):
        convert(nn.ReLU(), recipe("nvfp4"))
    assert not quantised_formats(model)
    with pytest.raises(ValueError, match=r"no quantised layers; convert it first"):
        set_format(model, "nvfp4")
    with pytest.raises(ValueError, match=r"no quantised layers; convert it first"):
        set_backward(model, "dequantized")
    with pytest.raises(ValueError, match=r"no quantised layers; convert it first"):
        engine_of(model)
    convert(model, recipe("nvfp4"))
    with pytest.raises(ValueError, match=r"converted already; use set_format and set_backward"):
        convert(model, recipe("nvfp4"))
    with pytest.raises(ValueError, match=r"format_name: 'fp4' is none of fp32, bf16, .*, nvfp4-46"):
        set_format(model, "fp4")
    with pytest.raises(ValueError, match=r"backward: 'none' is none of .*dequantized"):
        set_backward(model, "none")
    with pytest.raises(ValueError, match=r"execution: 'none' is none of auto, native, emulated"):
        set_execution(model, "none")
    with pytest.raises(ValueError, match=r"channels: 33 is not in \[1, 32\], the input channels of head"):
        outlier_scales(model, ["head"], channels=33, scale=2.0, seed=0)
    with pytest.raises(ValueError, match=r"layers: 'qkv' matches no layer"):
        outlier_scales(model, ["qkv"], channels=1, scale=2.0, seed=0)
    with pytest.raises(ValueError, match=r"input_scale: 3\.0 is not a power of two"):
        outlier_scales(model, ["head"], channels=1, scale=3.0, seed=0)


def test_the_formats_by_name():
    assert list(FORMATS) == [
        *("fp32", "bf16"),
        *("fp8-tensor", "fp8-tensor-hybrid", "fp8-tensor-mixed", "fp8-tensor-e5m2", "fp8-tensor-acc14"),
        *("fp8-row", "fp8-row-mixed", "fp8-row-e5m2", "fp8-row-acc14"),
        *("fp8-block", "fp8-block-32", "mxfp8", "mxfp8-rceil"),
        *("nvfp4", "nvfp4-46", "nvfp4-46-mae", "nvfp4-pretrain"),
    ]
    assert all(name == fmt.name for name, fmt in FORMATS.items())
