"""The quantised linear layer: forward, both ways back, the rescale, freezing."""

import copy

import pytest
import torch
from torch import Tensor, nn

from trimtab.trainer.quant import FORMATS, QuantLinear


def make(
    name: str, *, backward: str = "dequantized", bias: bool = True, scaled: bool = True, seed: int = 0
) -> QuantLinear:
    torch.manual_seed(seed)
    layer = QuantLinear(nn.Linear(128, 128, bias=bias), FORMATS[name], backward=backward)
    if scaled:
        factors = torch.ones(128)
        factors[[3, 77, 90]] = torch.tensor([16.0, 0.25, 2.0**10])
        layer.set_input_scale(factors)
    return layer


def operands(layer: QuantLinear, x: Tensor) -> tuple[Tensor, Tensor]:
    """The dequantised activation and weight, with the rescale undone on each, in float64."""
    scale = torch.ones(128) if layer.input_scale is None else layer.input_scale
    x_q = layer.format.fake(x * scale, "activation") / scale
    weight_q = layer.format.fake(layer.weight.detach() / scale, "weight") * scale
    return x_q.double(), weight_q.double()


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_forward_multiplies_the_dequantised_operands(name, bias, scaled):
    layer = make(name, bias=bias, scaled=scaled)
    x = torch.randn(2, 5, 128)
    x_q, weight_q = operands(layer, x)
    expected = x_q @ weight_q.t() + (0 if layer.bias is None else layer.bias.detach().double())
    trained = layer(x)
    # Where 14 bits accumulate the sums themselves are checked in test_accumulate.
    error = {"rtol": 1e-3, "atol": 1e-2} if layer.format.short_accumulator else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(trained.double(), expected, **error)
    with torch.no_grad():
        assert torch.equal(layer(x), trained)
    layer.freeze()
    assert torch.equal(layer(x), trained)


@pytest.mark.parametrize("backward", ["dequantized", "high_precision"])
@pytest.mark.parametrize("name", FORMATS)
def test_gradients_are_the_explicit_products(name, backward):
    layer = make(name, backward=backward)
    x = torch.randn(2, 5, 128, requires_grad=True)
    grad = torch.randn(2, 5, 128)
    layer(x).backward(grad)
    x_b, weight_b = operands(layer, x.detach())
    if backward == "high_precision":
        x_b, weight_b = x.detach().double(), layer.weight.detach().double()
    rows = grad.double().reshape(10, 128)
    close = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(x.grad.double(), grad.double() @ weight_b, **close)
    torch.testing.assert_close(layer.weight.grad.double(), rows.t() @ x_b.reshape(10, 128), **close)
    torch.testing.assert_close(layer.bias.grad.double(), rows.sum(0), **close)


def test_the_ways_back_differ_where_the_format_rounds():
    gradients = {}
    for backward in ("dequantized", "high_precision"):
        layer = make("nvfp4", backward=backward)
        layer(torch.ones(4, 128).cumsum(1)).square().sum().backward()
        gradients[backward] = layer.weight.grad
    assert not torch.allclose(gradients["dequantized"], gradients["high_precision"], rtol=1e-3)


@pytest.mark.parametrize("frozen", [False, True])
def test_in_fp32_it_is_the_plain_layer_whatever_the_rescale(frozen):
    torch.manual_seed(0)
    plain = nn.Linear(128, 128)
    layer = QuantLinear(copy.deepcopy(plain), FORMATS["fp32"])
    layer.set_input_scale(torch.exp2(torch.randint(-5, 12, (128,)).float()))
    if frozen:
        layer.freeze()
    x, x_layer = torch.randn(6, 128, requires_grad=True), None
    x_layer = x.detach().clone().requires_grad_()
    plain(x).square().sum().backward()
    layer(x_layer).square().sum().backward()
    assert torch.equal(layer(x), plain(x))
    torch.testing.assert_close(x_layer.grad, x.grad, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(layer.weight.grad, plain.weight.grad, rtol=1e-6, atol=1e-6)


def test_the_rescale_makes_nvfp4_see_outliers_and_leaves_fp8_rows_as_they_are():
    x = torch.randn(64, 128, generator=torch.Generator().manual_seed(1))
    error = {}
    for name in ("fp8-row", "nvfp4"):
        for scaled in (False, True):
            layer = make(name, bias=False, scaled=False)
            if scaled:
                factors = torch.ones(128)
                factors[[5, 60]] = 32.0
                layer.set_input_scale(factors)
            with torch.no_grad():
                exact = x @ layer.weight.t()
                error[name, scaled] = float((layer(x) - exact).square().mean().sqrt() / exact.std())
    assert error["nvfp4", True] > 1.5 * error["nvfp4", False]
    assert error["fp8-row", True] < 1.2 * error["fp8-row", False]


def test_a_frozen_weight_is_quantised_once_until_it_changes():
    layer = make("nvfp4", scaled=False)
    x = torch.randn(4, 128)
    layer.freeze()
    with torch.no_grad():
        before = layer(x)
        cached = layer._cached[0]
        assert layer(x).equal(before)
        assert layer._cached[0] is cached
    with torch.inference_mode():
        assert layer(x).equal(before)
    layer(x.requires_grad_()).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=1.0).step()
    assert torch.equal(layer(x), make_like(layer)(x))
    layer.load_state_dict(make("nvfp4", seed=7).state_dict())
    assert torch.equal(layer(x), make_like(layer)(x))
    layer.set_input_scale(torch.full((128,), 2.0))
    layer.format = FORMATS["mxfp8"]
    assert torch.equal(layer(x), make_like(layer)(x))
    layer.weight.data.mul_(-1)  # not counted by torch
    layer.freeze()
    assert torch.equal(layer(x), make_like(layer)(x))


def make_like(layer: QuantLinear) -> QuantLinear:
    """A copy that has quantised nothing yet."""
    other = copy.deepcopy(layer)
    other.freeze()
    return other


def test_a_weight_first_quantised_in_inference_mode_can_be_trained_through():
    layer = make("nvfp4")
    layer.freeze()
    with torch.inference_mode():
        layer(torch.randn(2, 128))
    layer(torch.randn(2, 128)).sum().backward()
    assert layer.weight.grad is not None


def test_low_precision_inputs_and_weights_come_back_in_the_input_dtype():
    layer = make("nvfp4", scaled=False).bfloat16()
    x = torch.randn(3, 128, dtype=torch.bfloat16, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert (y.dtype, x.grad.dtype, layer.weight.grad.dtype) == (torch.bfloat16,) * 3


def test_bad_settings_name_the_field_and_the_value():
    with pytest.raises(ValueError, match=r"backward: 'quantised' is none of quantized, high_precision, dequantized"):
        QuantLinear(nn.Linear(16, 16), FORMATS["nvfp4"], backward="quantised")
    layer = QuantLinear(nn.Linear(16, 16), FORMATS["nvfp4"])
    with pytest.raises(ValueError, match=r"input_scale: shape \[8\] is not \[in_features\] = \[16\]"):
        layer.set_input_scale(torch.ones(8))
    for wrong in (3.0, 0.0, -2.0, torch.inf, torch.nan):
        with pytest.raises(ValueError, match=rf"input_scale: {wrong} is not a power of two"):
            layer.set_input_scale(torch.tensor([1.0] * 15 + [wrong]))
