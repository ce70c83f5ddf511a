"""Accumulation in 14 bits against loops over exact fractions."""

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn

from trimtab.trainer.quant import FORMATS, QuantLinear, kernels
from trimtab.trainer.quant.accumulate import added_up, multiply
from trimtab.trainer.quant.matmul import product

NAMES = ("fp8-tensor-acc14", "fp8-row-acc14")


def exponent(x: float | Fraction) -> int:
    """floor(log2 |x|)"""
    mantissa, exponent = math.frexp(float(x))
    assert mantissa != 0
    return exponent - 1


def towards_zero(x: Fraction, quantum: Fraction) -> Fraction:
    return math.trunc(x / quantum) * quantum


def dot_in_14_bits(a: list[float], b: list[float]) -> float:
    """One output, product by product."""
    total, accumulator = torch.zeros(()), Fraction(0)
    for start in range(0, len(a), 32):
        pairs = [(x, y) for x, y in zip(a[start : start + 32], b[start : start + 32], strict=True) if x and y]
        exponents = [exponent(x) + exponent(y) for x, y in pairs]
        if accumulator:
            exponents.append(exponent(accumulator))
        if exponents:
            quantum = Fraction(2) ** (max(exponents) - 13)
            terms = [accumulator, *(Fraction(x) * Fraction(y) for x, y in pairs)]
            accumulator = sum((towards_zero(term, quantum) for term in terms), Fraction(0))
            if accumulator:
                accumulator = towards_zero(accumulator, Fraction(2) ** (exponent(accumulator) - 13))
        if (start + 32) % 128 == 0:
            total, accumulator = total + float(accumulator), Fraction(0)  # float32
    return float(total + float(accumulator))


def reference(a: Tensor, b: Tensor) -> Tensor:
    return torch.tensor([[dot_in_14_bits(x, y) for y in b.tolist()] for x in a.tolist()])


def codes(rows: int, depth: int, elements: torch.dtype, seed: int, *, spread: float) -> Tensor:
    """Values of FP8 whose magnitudes spread over `spread` powers of two, some of them zero."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, depth, generator=generator)
    x *= torch.exp2(spread * (torch.rand(rows, depth, generator=generator) - 0.5))
    x[torch.rand(rows, depth, generator=generator) < 0.2] = 0.0
    largest = torch.finfo(elements).max
    return (x * 8).clamp(-largest, largest).to(elements).float()


@pytest.mark.parametrize("spread", [0.0, 8.0, 24.0])
@pytest.mark.parametrize("depth", [1, 31, 32, 33, 64, 128, 160, 256, 300])
@pytest.mark.parametrize("elements", [torch.float8_e4m3fn, torch.float8_e5m2], ids=["e4m3", "e5m2"])
def test_bits_equal_the_reference(elements, depth, spread):
    a, b = (codes(rows, depth, elements, depth + rows, spread=spread) for rows in (3, 5))
    a[1] = 0.0
    expected = reference(a, b)
    assert torch.equal(added_up(a, b), expected)
    one = torch.ones(1, 1)
    fmt = FORMATS["fp8-tensor-acc14"]
    quantised = [type(fmt.quantize(x, "activation"))(codes=x.to(elements), scale=one) for x in (a, b)]
    assert torch.equal(multiply(*quantised), expected)


@pytest.mark.skipif(kernels.backend() == "torch", reason=f"no kernels: {kernels.load().reason}")
@pytest.mark.parametrize("outputs", [1, 31, 32, 96, 100])
@pytest.mark.parametrize("name", NAMES)
def test_the_compiled_kernel_equals_torch_to_the_bit(name, outputs):
    generator = torch.Generator().manual_seed(outputs)
    x, weight = (torch.randn(rows, 192, generator=generator) for rows in (64, outputs))
    x_q, weight_q = FORMATS[name].quantize(x * 30, "activation"), FORMATS[name].quantize(weight, "weight")
    in_torch = added_up(x_q.codes.float(), weight_q.codes.float()) * x_q.scale * weight_q.scale.reshape(-1)
    assert torch.equal(multiply(x_q, weight_q), in_torch)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_close_to_exact_and_smaller_in_magnitude(name):
    fmt = FORMATS[name]
    generator = torch.Generator().manual_seed(7)
    x, weight = torch.randn(200, 1024, generator=generator).abs(), torch.randn(64, 1024, generator=generator).abs()
    found = product(x, fmt.quantize(weight, "weight"), None, fmt)
    exact = fmt.fake(x, "activation").double() @ fmt.fake(weight, "weight").double().t()
    # What is cut off is always cut off towards zero, up to 33 times a group, each time less than 2^-13 of its largest.
    assert bool((found <= exact).all())
    assert 1e-4 < float(((exact - found) / exact).mean()) < 33 * 2.0**-13 * 0.5


def test_a_layer_multiplies_codes_forward_and_back_frozen_or_not():
    generator = torch.Generator().manual_seed(3)
    layer = QuantLinear(nn.Linear(64, 48), FORMATS["fp8-row-acc14"], backward="quantized")
    x = torch.randn(40, 64, generator=generator).requires_grad_()
    fmt = layer.format
    y = layer(x)
    grad = torch.randn(40, 48, generator=generator)
    y.backward(grad)
    weight = layer.weight.detach()
    expected = multiply(fmt.quantize(x.detach(), "activation"), fmt.quantize(weight, "weight")) + layer.bias.detach()
    assert torch.equal(y.detach(), expected)
    back = multiply(fmt.quantize(grad, "gradient"), fmt.quantize(weight.t(), "weight"))
    assert torch.equal(x.grad, back)
    back = multiply(fmt.quantize(grad.t(), "gradient"), fmt.quantize(x.detach().t(), "activation"))
    assert torch.equal(layer.weight.grad, back)
    layer.freeze()
    with torch.no_grad():
        assert torch.equal(layer(x), expected)
    assert layer.engine == "fp8-emulated"


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_finite_stays_so(name):
    fmt = FORMATS[name]
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    x[2, 5] = torch.inf
    y = product(x, fmt.quantize(torch.ones(8, 64), "weight"), None, fmt)
    rows = [True] * 4 if name == "fp8-tensor-acc14" else [False, False, True, False]
    assert y.isnan().all(1).tolist() == rows
    assert y.isnan().any(1).tolist() == rows
    assert product(x[:0], fmt.quantize(torch.ones(8, 64), "weight"), None, fmt).shape == (0, 8)
