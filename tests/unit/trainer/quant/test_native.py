"""FP8 matmuls by the machine's own kernel, on sizes that torch's loop for the CPU can bear."""

import pytest
import torch
from torch import nn

from trimtab.trainer.quant import FORMATS, QuantLinear


def pair(name: str, *, backward: str = "dequantized", scaled: bool = False) -> tuple[QuantLinear, QuantLinear]:
    """The same layer, native and emulated."""
    torch.manual_seed(3)
    linear = nn.Linear(64, 16)
    layers = (
        QuantLinear(linear, FORMATS[name], backward=backward),
        QuantLinear(linear, FORMATS[name], backward=backward),
    )
    for layer, execution in zip(layers, ("native", "emulated"), strict=True):
        layer.execution = execution
        if scaled:
            layer.set_input_scale(torch.exp2(torch.arange(64) % 5.0))
    return layers


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", ["fp8-tensor", "fp8-row"])
def test_native_and_emulated_differ_by_float32_rounding_alone(name, scaled):
    native, emulated = pair(name, scaled=scaled)
    x = torch.randn(2, 3, 64) * torch.tensor([1.0, 50.0, 1e-3])[:, None]
    with torch.no_grad():
        expected = emulated(x)
        torch.testing.assert_close(native(x), expected, rtol=1e-5, atol=1e-5)
        native.freeze()
        torch.testing.assert_close(native(x), expected, rtol=1e-5, atol=1e-5)
        assert native(x[0, 0]).shape == (16,)
    assert (native.engine, emulated.engine) == ("fp8-native", "fp8-emulated")


@pytest.mark.parametrize("backward", ["quantized", "dequantized", "high_precision"])
@pytest.mark.parametrize("name", ["fp8-tensor", "fp8-row"])
def test_the_way_back_does_not_depend_on_the_execution(name, backward):
    gradients = []
    for layer in pair(name, backward=backward, scaled=True):
        x = torch.ones(4, 64).cumsum(1).requires_grad_()
        layer(x).backward(torch.ones(4, 16).cumsum(0))
        gradients.append((x.grad, layer.weight.grad.clone(), layer.bias.grad.clone()))
        layer.zero_grad()
    for native, emulated in zip(*gradients, strict=True):
        assert torch.equal(native, emulated)


def test_a_frozen_layer_that_changes_execution_quantises_again():
    layer, emulated = pair("fp8-row")
    layer.execution = "auto"
    layer.freeze()
    x = torch.randn(2, 64)
    with torch.no_grad():
        assert torch.equal(layer(x), emulated(x))
        layer.execution = "native"
        torch.testing.assert_close(layer(x), emulated(x), rtol=1e-5, atol=1e-5)
        layer.execution = "emulated"
        assert torch.equal(layer(x), emulated(x))


@pytest.mark.parametrize("name", FORMATS)
def test_automatic_execution_on_a_cpu_is_emulated_and_labelled(name):
    layer = QuantLinear(nn.Linear(128, 128), FORMATS[name])
    family = FORMATS[name].family
    assert layer.execution == "auto"
    assert layer.engine == ("fp32-native" if name == "fp32" else f"{family}-emulated")
    assert name.startswith(family)


@pytest.mark.parametrize(
    ("name", "size", "reason"),
    [
        ("nvfp4", 64, "format nvfp4 has no native kernel here; fp8-tensor, fp8-tensor-hybrid and fp8-row have"),
        ("fp8-block-32", 64, "format fp8-block-32 has no native kernel here"),
        ("fp8-row", 40, r"shape \[40, 40\] is not of whole 16s"),
    ],
)
def test_what_cannot_run_natively_is_refused_with_the_reason(name, size, reason):
    layer = QuantLinear(nn.Linear(size, size), FORMATS[name])
    layer.execution = "native"
    message = f"execution: 'native' is refused: {reason}.*; choose auto or emulated"
    with pytest.raises(ValueError, match=message):
        layer(torch.zeros(1, size))
    with pytest.raises(ValueError, match=message):
        _ = layer.engine
    layer.execution = "emulated"
    assert layer(torch.zeros(1, size)).shape == (1, size)


def test_an_unknown_execution_is_refused():
    layer = QuantLinear(nn.Linear(16, 16), FORMATS["fp8-row"])
    with pytest.raises(ValueError, match="execution: 'fast' is none of auto, native, emulated"):
        layer.execution = "fast"
    assert layer.execution == "auto"
