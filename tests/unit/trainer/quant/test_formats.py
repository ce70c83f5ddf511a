"""Every format against loops over scalars and searches over enumerated grids, to the bit."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trimtab.trainer.quant import FORMATS, Role

f32 = np.float32
ROLES: tuple[Role, ...] = ("weight", "activation")
VARIANTS = ("mixed", "e5m2", "acc14")
FP8_TENSOR = ("fp8-tensor", "fp8-tensor-hybrid", *(f"fp8-tensor-{variant}" for variant in VARIANTS))
FP8_ROW = ("fp8-row", *(f"fp8-row-{variant}" for variant in VARIANTS))
WIDE: dict[str, tuple[Role, ...]] = {
    "fp8-tensor-hybrid": ("gradient",),
    **dict.fromkeys(("fp8-tensor-mixed", "fp8-row-mixed"), ("activation", "gradient")),
    **dict.fromkeys(("fp8-tensor-e5m2", "fp8-row-e5m2"), ("weight", "activation", "gradient")),
}
"""What is E5M2."""
SCALED = [name for name in FORMATS if name not in ("fp32", "bf16")]


# Grids, enumerated from their codes: value, in the order of the code without its sign.
def small_float(code: int, exponent_bits: int, mantissa_bits: int) -> float:
    exponent, mantissa = code >> mantissa_bits, code & (2**mantissa_bits - 1)
    bias = 2 ** (exponent_bits - 1) - 1
    if exponent == 0:
        return mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)


E4M3 = np.array([small_float(code, 4, 3) for code in range(127)])  # code 127 is NaN
E5M2 = np.array([small_float(code, 5, 2) for code in range(124)])  # code 124 is infinity
E2M1 = np.array([small_float(code, 2, 1) for code in range(8)])


def nearest(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Nearest grid value by exhaustive search in float64; of two at the same distance, the one with the even code."""
    magnitudes = np.minimum(np.abs(values.astype(np.float64)), grid[-1])
    distance = np.abs(magnitudes[..., None] - grid)
    at_minimum = distance == distance.min(-1, keepdims=True)
    preference = at_minimum * np.where(np.arange(len(grid)) % 2 == 0, 2, 1)
    return np.copysign(grid[preference.argmax(-1)], values).astype(f32)


# The formats, group by group, in float32 scalars.
def reference_fp8_group(group: np.ndarray, grid: np.ndarray) -> tuple[np.ndarray, np.float32]:
    scale = max(f32(np.abs(group).max()) / f32(grid[-1]), f32(2.0**-126))
    return nearest(group / scale, grid) * scale, scale


def reference_mxfp8_group(group: np.ndarray, *, round_up: bool) -> tuple[np.ndarray, np.float32]:
    amax = float(np.abs(group).max())
    exponent = -127
    if round_up:
        while 448 * 2.0**exponent < amax:  # the smallest power of two, times 448, not below amax
            exponent += 1
    else:
        while exponent < 127 and 2.0 ** (exponent + 1 + 8) <= amax:  # the largest, times 2^8, not above amax
            exponent += 1
    scale = f32(2.0**exponent)
    return nearest(group.astype(np.float64) / 2.0**exponent, E4M3) * scale, scale


def reference_nvfp4_block(
    block: np.ndarray, amax: np.float32, four_over_six: str | None
) -> tuple[np.ndarray, np.float32]:
    largest = f32(np.finfo(f32).max)
    bound = f32(256 if four_over_six else 448)
    enc = min(bound * f32(6) / amax, largest)
    dec = f32(1) / enc
    block_amax = f32(np.abs(block).max())
    base = block_amax / f32(6) * enc if four_over_six else block_amax * (enc * (f32(1) / f32(6)))
    candidates = []
    for stretch in (f32(1), f32(1.5)) if four_over_six else (f32(1),):
        scale = f32(nearest(np.array([base * stretch]), E4M3)[0])
        codes = nearest(block * min(f32(1) / (scale * dec), largest), E2M1)
        error = f32(0)
        for code, value in zip(codes, block, strict=True):
            difference = code * scale * amax / (f32(6) * bound) - value
            error = error + (abs(difference) if four_over_six == "mae" else difference * difference)
        candidates.append((error, codes * scale * dec, scale))
    _, values, scale = candidates[1] if four_over_six and candidates[1][0] < candidates[0][0] else candidates[0]
    return values, scale


def reference(name: str, x: np.ndarray, role: Role) -> tuple[np.ndarray, np.ndarray]:
    """Dequantised values and the list of scales, for a two-dimensional `x`, block by block in row-major order."""
    rows, columns = x.shape
    height, width = {
        **dict.fromkeys(FP8_TENSOR, (rows, columns)),
        **dict.fromkeys(FP8_ROW, (1, columns)),
        "fp8-block": (128 if role == "weight" else 1, 128),
        "fp8-block-32": (32 if role == "weight" else 1, 32),
        "mxfp8": (1, 32),
        "mxfp8-rceil": (1, 32),
        "nvfp4": (1, 16),
        "nvfp4-46": (1, 16),
        "nvfp4-46-mae": (1, 16),
        "nvfp4-pretrain": (16 if role == "weight" else 1, 16),
    }[name]
    rule = {"nvfp4-46": "mse", "nvfp4-46-mae": "mae"}.get(name)
    out, scales = np.empty_like(x), []
    for top in range(0, rows, height):
        for left in range(0, columns, width):
            where = np.s_[top : top + height, left : left + width]
            with np.errstate(all="ignore"):
                if name.startswith("fp8"):
                    out[where], scale = reference_fp8_group(x[where], E5M2 if role in WIDE.get(name, ()) else E4M3)
                elif name.startswith("mxfp8"):
                    out[where], scale = reference_mxfp8_group(x[where], round_up=name == "mxfp8-rceil")
                else:
                    amax = f32(np.abs(x[top] if role == "activation" and name != "nvfp4-pretrain" else x).max())
                    values, scale = reference_nvfp4_block(x[where].reshape(-1), amax, rule)
                    out[where] = values.reshape(height, width)
            scales.append(scale)
    return out, np.array(scales, dtype=f32)


def bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.int32)


def check_against_reference(name: str, x: Tensor, role: Role) -> None:
    quantised = FORMATS[name].quantize(x, role)
    values, scales = reference(name, x.numpy(), role)
    assert quantised.scale is not None
    torch.testing.assert_close(quantised.scale.to(torch.float32).flatten(), torch.from_numpy(scales), rtol=0, atol=0)
    assert torch.equal(bits(FORMATS[name].dequantize(quantised, role)), bits(torch.from_numpy(values)))
    assert torch.equal(bits(FORMATS[name].fake(x, role)), bits(torch.from_numpy(values)))


def gaussian(x: Tensor, _generator: torch.Generator) -> Tensor:
    return x


def outlier_row(x: Tensor, generator: torch.Generator) -> Tensor:
    x[int(torch.randint(len(x), (1,), generator=generator))] *= 3e4
    return x


def outlier_channels(x: Tensor, generator: torch.Generator) -> Tensor:
    x[:, torch.randint(x.shape[1], (3,), generator=generator)] *= 64
    return x


def any_magnitude(x: Tensor, generator: torch.Generator) -> Tensor:
    return x.sign() * torch.exp2(torch.rand(x.shape, generator=generator) * 270 - 145)


def zeros_within(x: Tensor, generator: torch.Generator) -> Tensor:
    x[torch.rand(x.shape, generator=generator) < 0.3] = 0.0
    x[torch.rand(x.shape, generator=generator) < 0.1] = -0.0
    x[0] = 0.0
    x[1:33, 32:64] = 0.0
    return x


def small_integers(x: Tensor, generator: torch.Generator) -> Tensor:
    """Many exact ties."""
    return torch.randint(-12, 13, x.shape, generator=generator) / 4.0


def bfloat16_values(x: Tensor, _generator: torch.Generator) -> Tensor:
    """Ratios of short numbers, whose scales often lie on a tie."""
    return x.bfloat16().float()


def subnormal(x: Tensor, _generator: torch.Generator) -> Tensor:
    return x * 1e-40


def nearly_largest(x: Tensor, _generator: torch.Generator) -> Tensor:
    return x.clamp(-1, 1) * 1.7e38


INPUTS = [
    gaussian,
    outlier_row,
    outlier_channels,
    any_magnitude,
    zeros_within,
    small_integers,
    bfloat16_values,
    subnormal,
    nearly_largest,
]


@pytest.mark.parametrize("make", INPUTS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", SCALED)
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 2**31 - 1))
def test_bits_equal_the_reference(name, role, make, seed):
    generator = torch.Generator().manual_seed(seed)
    check_against_reference(name, make(torch.randn(64, 128, generator=generator), generator), role)


@pytest.mark.parametrize("make", INPUTS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", [*FP8_TENSOR, *FP8_ROW])
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 2**31 - 1))
def test_gradients_in_fp8_equal_the_reference(name, make, seed):
    generator = torch.Generator().manual_seed(seed)
    check_against_reference(name, make(torch.randn(64, 128, generator=generator), generator), "gradient")


RAGGED = [(1, 1), (5, 7), (31, 33), (64, 40), (130, 72), (129, 257), (96, 576)]


@pytest.mark.parametrize("shape", RAGGED)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", ["fp8-block", "fp8-block-32"])
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 2**31 - 1))
def test_the_last_blocks_of_fp8_are_as_small_as_what_is_left(name, role, shape, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator) * torch.exp2(torch.randint(-9, 9, (shape[0], 1), generator=generator))
    check_against_reference(name, x, role)
    size = FORMATS[name].size
    scales = FORMATS[name].quantize(x, role).scale
    assert scales.shape == (math.ceil(shape[0] / size) if role == "weight" else shape[0], math.ceil(shape[1] / size))
    check_against_reference(name, bfloat16_values(x, generator), role)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", SCALED)
def test_all_zero_is_all_zero_with_its_signs(name, role):
    x = torch.zeros(128, 128)
    x[:, ::3] = -0.0
    assert torch.equal(bits(FORMATS[name].fake(x, role)), bits(x))


def test_e4m3_rounds_every_midpoint_to_even_and_saturates():
    midpoints = (E4M3[:-1] + E4M3[1:]) / 2
    row = np.concatenate([E4M3, -E4M3, midpoints, -midpoints, np.nextafter(f32(448), f32(0), dtype=f32)[None]])
    x = torch.tensor(row, dtype=torch.float32)[None]  # amax is 448, so that the scale is 1
    quantised = FORMATS["fp8-row"].quantize(x, "activation")
    assert quantised.codes.dtype == torch.float8_e4m3fn
    even = np.where(np.arange(126) % 2 == 0, E4M3[:-1], E4M3[1:])
    expected = np.concatenate([E4M3, -E4M3, even, -even, [448.0]])
    assert torch.equal(bits(quantised.codes.to(torch.float32)), bits(torch.tensor(expected, dtype=torch.float32)[None]))


def test_e5m2_rounds_every_midpoint_to_even_and_saturates():
    midpoints = (E5M2[:-1] + E5M2[1:]) / 2
    row = np.concatenate([E5M2, -E5M2, midpoints, -midpoints, np.nextafter(f32(57344), f32(0), dtype=f32)[None]])
    x = torch.tensor(row, dtype=torch.float32)[None]  # amax is 57344, so that the scale is 1
    quantised = FORMATS["fp8-row-e5m2"].quantize(x, "activation")
    assert quantised.codes.dtype == torch.float8_e5m2
    even = np.where(np.arange(123) % 2 == 0, E5M2[:-1], E5M2[1:])
    expected = torch.tensor(np.concatenate([E5M2, -E5M2, even, -even, [57344.0]]), dtype=torch.float32)[None]
    assert torch.equal(bits(quantised.codes.to(torch.float32)), bits(expected))
    assert torch.equal(bits(FORMATS["fp8-row-e5m2"].fake(x, "activation")), bits(expected))


def test_e2m1_rounds_every_midpoint_to_even_and_saturates():
    ties = {0.25: 0.0, 0.75: 1.0, 1.25: 1.0, 1.75: 2.0, 2.5: 2.0, 3.5: 4.0, 5.0: 4.0}
    above = {float(np.nextafter(f32(t), f32(9), dtype=f32)): float(min(v for v in E2M1 if v > t)) for t in ties}
    below = {float(np.nextafter(f32(t), f32(0), dtype=f32)): float(max(v for v in E2M1 if v < t)) for t in ties}
    cases = ties | above | below | {float(v): float(v) for v in E2M1}
    x = torch.zeros(2, 64)
    x[0, 0] = 2688.0  # the first block makes the row's global scale 1, and a 6 in each other block makes its scale 1
    x[0, 16::16] = 6.0
    free = [i for i in range(17, 64) if i % 16]
    x[0, free[: len(cases)]] = torch.tensor(list(cases))
    x[1] = -x[0]
    codes = FORMATS["nvfp4"].quantize(x, "activation").codes
    expected = torch.tensor(list(cases.values()))
    assert torch.equal(bits(codes[0, free[: len(cases)]]), bits(expected))
    assert torch.equal(bits(codes[1, free[: len(cases)]]), bits(-expected))


@pytest.mark.parametrize(
    ("amax", "scale"),
    [
        (448.0, 2.0**0),
        (256.0, 2.0**0),
        (255.9, 2.0**-1),
        (511.9, 2.0**0),
        (512.0, 2.0**1),
        (1.0, 2.0**-8),
        (2.0**-119, 2.0**-127),
        (2.0**-140, 2.0**-127),
        (3.4e38, 2.0**119),
    ],
)
def test_mxfp8_scale_is_the_floor_power_of_two(amax, scale):
    x = torch.zeros(1, 32)
    x[0, 7] = -amax
    quantised = FORMATS["mxfp8"].quantize(x, "activation")
    assert quantised.scale is not None
    assert quantised.scale.dtype == torch.float8_e8m0fnu
    assert quantised.scale.to(torch.float32).tolist() == [[scale]]
    assert FORMATS["mxfp8"].fake(x, "activation")[0, 7].item() >= -448 * scale


@pytest.mark.parametrize("exponent", [-110, -8, 0, 31, 110])
@pytest.mark.parametrize(("significand", "up"), [(1.0, 0), (1.5, 0), (1.75, 0), (1.75 + 2.0**-23, 1), (1.99, 1)])
def test_mxfp8_rceil_rounds_the_scale_up_at_448(exponent, significand, up):
    x = torch.zeros(1, 32)
    x[0, 3] = significand * 2.0**exponent
    quantised = FORMATS["mxfp8-rceil"].quantize(x, "activation")
    assert quantised.scale is not None
    assert quantised.scale.to(torch.float32).tolist() == [[2.0 ** (exponent - 8 + up)]]
    assert quantised.codes.to(torch.float32).max() <= 448


def test_absolute_and_squared_errors_choose_differently():
    x = torch.zeros(1, 32)
    x[0, 0] = 1536.0  # the global scale is 1
    # With scale 1, errors 0.3125, 0.375, 0.375; with 1.5, errors 0.6875, 0.125, 0.125: less in sum, more in squares.
    x[0, 16:20] = torch.tensor([6.0, 3.6875, 2.375, 2.375])
    values = {}
    for name in ("nvfp4-46", "nvfp4-46-mae"):
        values[name] = FORMATS[name].fake(x, "activation")[0, 16:20].tolist()
    assert values == {"nvfp4-46": [6.0, 4.0, 2.0, 2.0], "nvfp4-46-mae": [6.0, 3.0, 2.25, 2.25]}


def test_four_over_six_takes_four_only_when_strictly_better():
    x = torch.zeros(1, 48)
    x[0, 0] = 1536.0  # the global scale is 1
    x[0, 16:32] = 6.0  # exact as 6 * 1 and as 4 * 1.5: a tie
    x[0, 32:48] = torch.tensor([6.0] + [4.5] * 15)  # 4.5 lies between 4 and 6, but is exactly 3 * 1.5
    quantised = FORMATS["nvfp4-46"].quantize(x, "activation")
    assert quantised.scale is not None
    assert quantised.scale.to(torch.float32).tolist() == [[256.0, 1.0, 1.5]]
    assert torch.equal(FORMATS["nvfp4-46"].fake(x, "activation"), x)
    assert torch.equal(FORMATS["nvfp4-46-mae"].fake(x, "activation"), x)
