"""The three ways back through a quantised matmul, against explicit matrices; stochastic rounding; the rotation."""

import math

import pytest
import torch
from torch import Tensor, nn

from trimtab.trainer.quant import FORMATS, QuantLinear
from trimtab.trainer.quant.grids import to_e2m1_stochastic
from trimtab.trainer.quant.hadamard import SIGNS, hadamard_matrix, rotate

DETERMINISTIC = [name for name in FORMATS if name != "nvfp4-pretrain"]
CUT_OFF = 3e-4
"""Share of a product's norm that is lost where 14 bits accumulate."""


def quantise_rows(name: str, x: Tensor, role: str) -> Tensor:
    """[rows, n] quantised along n, whole blocks made by appending zeros one by one."""
    block = FORMATS[name].block(role)[1]
    padded = x
    while padded.shape[1] % block:
        padded = torch.cat([padded, torch.zeros(len(x), 1)], dim=1)
    return FORMATS[name].fake(padded.contiguous(), role)[:, : x.shape[1]]


def contracted(a: Tensor, b: Tensor) -> Tensor:
    """[m, n] and [k, n] to [m, k], float64."""
    return torch.stack([(row.double() * b.double()).sum(1) for row in a])


def layer_and_input(name: str, seed: int, *, bias: bool, scaled: bool, out: int, tokens: int) -> tuple:
    generator = torch.Generator().manual_seed(seed)
    layer = QuantLinear(nn.Linear(128, out, bias=bias), FORMATS[name], backward="quantized")
    with torch.no_grad():
        layer.weight.copy_(torch.randn(out, 128, generator=generator))
    if scaled:
        layer.set_input_scale(torch.exp2(torch.randint(-3, 6, (128,), generator=generator).float()))
    x = torch.randn(tokens, 128, generator=generator).requires_grad_()
    return layer, x, torch.randn(tokens, out, generator=generator)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_quantized_gradients_are_the_explicit_products(name, bias, scaled):
    layer, x, grad = layer_and_input(name, 5, bias=bias, scaled=scaled, out=96, tokens=37)
    layer(x).backward(grad)
    unscaled = layer.format.scale_free or layer.input_scale is None
    scale = torch.ones(128) if unscaled else layer.input_scale
    weight = layer.weight.detach() / scale
    grad_x = contracted(quantise_rows(name, grad, "gradient"), quantise_rows(name, weight.t(), "weight")) * scale
    grad_t, x_t = grad.t(), (x.detach() * scale).t()
    grad_weight = contracted(quantise_rows(name, grad_t, "gradient"), quantise_rows(name, x_t, "activation")) / scale
    close = {"rtol": 1e-5, "atol": 1e-4}
    if layer.format.short_accumulator:
        for found, exact in ((x.grad / scale, grad_x / scale), (layer.weight.grad * scale, grad_weight * scale)):
            assert 0.0 < (found.double() - exact).norm() / exact.norm() < CUT_OFF
    else:
        torch.testing.assert_close(x.grad.double(), grad_x, **close)
        torch.testing.assert_close(layer.weight.grad.double(), grad_weight, **close)
    if bias:
        torch.testing.assert_close(layer.bias.grad.double(), grad.double().sum(0), **close)


@pytest.mark.parametrize("out", [1, 24, 100])
@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "nvfp4-46", "fp8-row", "fp8-block", "fp8-block-32"])
def test_output_channels_and_tokens_need_not_fill_blocks_on_the_way_back(name, out):
    layer, x, grad = layer_and_input(name, out, bias=False, scaled=False, out=out, tokens=5)
    layer(x).backward(grad)
    grad_x = contracted(quantise_rows(name, grad, "gradient"), quantise_rows(name, layer.weight.detach().t(), "weight"))
    torch.testing.assert_close(x.grad.double(), grad_x, rtol=1e-5, atol=1e-4)


def filled_and_quantised(name: str, x: Tensor, role: str) -> Tensor:
    """`x` quantised within zeros up to whole blocks of 128."""
    filled = torch.zeros(-(-len(x) // 128) * 128, -(-x.shape[1] // 128) * 128)
    filled[: len(x), : x.shape[1]] = x
    return FORMATS[name].fake(filled, role)[: len(x), : x.shape[1]]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", ["fp8-block", "fp8-block-32"])
def test_layers_that_fill_no_whole_number_of_blocks_multiply_what_zeros_around_them_leave(name, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens, width, out = 37, 192 + seed, 72
    layer = QuantLinear(nn.Linear(width, out, bias=False), FORMATS[name], backward="quantized")
    x = torch.randn(tokens, width, generator=generator).requires_grad_()
    grad, weight = torch.randn(tokens, out, generator=generator), layer.weight.detach()
    y = layer(x)
    y.backward(grad)

    def quantised(values: Tensor, role: str) -> Tensor:
        return filled_and_quantised(name, values, role)

    close = {"rtol": 1e-5, "atol": 1e-4}
    expected = contracted(quantised(x.detach(), "activation"), quantised(weight, "weight"))
    torch.testing.assert_close(y.detach().double(), expected, **close)
    expected = contracted(quantised(grad, "gradient"), quantised(weight.t(), "weight"))
    torch.testing.assert_close(x.grad.double(), expected, **close)
    expected = contracted(quantised(grad.t(), "gradient"), quantised(x.detach().t(), "activation"))
    torch.testing.assert_close(layer.weight.grad.double(), expected, **close)


def test_a_batch_without_tokens_has_a_zero_weight_gradient():
    for name in FORMATS:
        layer = QuantLinear(nn.Linear(128, 128), FORMATS[name], backward="quantized")
        layer(torch.zeros(0, 128, requires_grad=True)).sum().backward()
        assert layer.weight.grad.count_nonzero() == 0


def test_the_mode_is_switched_between_two_passes():
    layer, x, grad = layer_and_input("nvfp4", 1, bias=False, scaled=False, out=96, tokens=32)
    gradients = {}
    for mode in ("quantized", "dequantized", "high_precision", "quantized"):
        layer.backward_mode = mode
        x.grad = layer.weight.grad = None
        layer(x).backward(grad)
        if mode in gradients:
            assert torch.equal(gradients[mode], layer.weight.grad)
        gradients[mode] = layer.weight.grad
    exact = grad.t() @ x.detach()
    error = {mode: float((found - exact).norm() / exact.norm()) for mode, found in gradients.items()}
    assert error["high_precision"] < 1e-6
    assert 0.05 < error["dequantized"] < error["quantized"] < 0.3
    with pytest.raises(ValueError, match="backward: 'fp8' is none of quantized, high_precision, dequantized"):
        layer.backward_mode = "fp8"
    assert layer.backward_mode == "quantized"


def test_the_pretraining_weight_gradient_is_the_exact_one_on_average_and_repeats_with_the_generator():
    layer, x, grad = layer_and_input("nvfp4-pretrain", 11, bias=False, scaled=False, out=32, tokens=40)
    samples = []
    for draw in range(300):
        torch.manual_seed(draw)
        x.grad = layer.weight.grad = None
        layer(x).backward(grad)
        samples.append((x.grad, layer.weight.grad))
    torch.manual_seed(299)
    x.grad = layer.weight.grad = None
    layer(x).backward(grad)
    assert torch.equal(x.grad, samples[-1][0])
    assert torch.equal(layer.weight.grad, samples[-1][1])
    # The other operand of each product is rounded to nearest, so the mean is a product with what that stands for.
    fmt = FORMATS["nvfp4-pretrain"]
    x_q = fmt.fake(rotate(torch.cat([x.detach().t(), torch.zeros(128, 8)], dim=1)), "activation").double()
    rotated = rotate(torch.cat([grad.t(), torch.zeros(32, 8)], dim=1))
    weight_q = fmt.fake(layer.weight.detach(), "weight").double()
    expected = (saturated(grad).double() @ weight_q, saturated(rotated).double() @ x_q.t())
    for found, mean in zip(zip(*samples, strict=True), expected, strict=True):
        draws = torch.stack(found).double()
        z = (draws.mean(0) - mean) / (draws.std(0) / math.sqrt(len(draws)))
        assert z.mean().abs() < 0.1
        assert z.square().mean().sqrt() == pytest.approx(1.0, abs=0.1)
        assert z.abs().max() < 6


def saturated(x: Tensor) -> Tensor:
    """`x` up to 6 times each block's scale, which E4M3 may have rounded down: what stochastic rounding can reach."""
    quantised = FORMATS["nvfp4-pretrain"].quantize(x, "gradient")
    bound = (6 * quantised.scale.float() * quantised.global_scale).repeat_interleave(16, dim=1)
    return x.clamp(-bound, bound)


@pytest.mark.parametrize("value", [0.1, 0.5, 0.74, 1.3, 2.9, 3.0, 4.5, 5.9])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_stochastic_rounding_takes_a_neighbour_and_is_right_on_average(value, sign):
    grid = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    torch.manual_seed(int(value * 100))
    count = 100_000
    rounded = to_e2m1_stochastic(torch.full((count,), sign * value))
    below, above = max(v for v in grid if v <= value), min(v for v in grid if v >= value)
    assert set((rounded * sign).unique().tolist()) == {below, above}
    deviation = math.sqrt((above - value) * (value - below) / count)
    assert abs(float(rounded.double().mean()) - sign * value) <= 5 * deviation + 1e-7 * value


def test_stochastic_rounding_saturates_keeps_signs_and_leaves_the_grid_alone():
    x = torch.tensor([7.0, -1e30, 0.0, -0.0, 6.0, -4.0, 0.5, torch.inf])
    rounded = to_e2m1_stochastic(x)
    assert rounded.tolist() == [6.0, -6.0, 0.0, 0.0, 6.0, -4.0, 0.5, 6.0]
    assert torch.equal(rounded.signbit(), x.signbit())


def test_the_rotation_is_sylvesters_matrix_with_signs_and_is_orthogonal():
    sylvester = [[1.0]]
    for _ in range(4):
        sylvester = [row + row for row in sylvester] + [row + [-v for v in row] for row in sylvester]
    expected = torch.tensor([[sign * v / 4 for v in row] for sign, row in zip(SIGNS, sylvester, strict=True)])
    matrix = hadamard_matrix(torch.device("cpu"))
    assert torch.equal(matrix, expected)
    assert torch.equal(matrix @ matrix.t(), torch.eye(16))


@pytest.mark.parametrize("seed", [1, 2])
def test_rotating_both_operands_leaves_their_product(seed):
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(3, 5, 48, generator=generator), torch.randn(7, 48, generator=generator)
    torch.testing.assert_close(rotate(a) @ rotate(b).t(), a @ b.t(), rtol=1e-5, atol=1e-5)
    spread = torch.zeros(1, 16)
    spread[0, 3] = 8.0
    assert rotate(spread).abs().tolist() == [[2.0] * 16]


def test_pretraining_weights_are_quantised_to_the_same_numbers_transposed():
    weight = torch.randn(64, 48, generator=torch.Generator().manual_seed(9))
    fmt = FORMATS["nvfp4-pretrain"]
    assert torch.equal(fmt.fake(weight.t(), "weight"), fmt.fake(weight, "weight").t())
