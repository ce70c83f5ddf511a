"""What holds for every format: non-finite values, independent tokens, size of the error, refused inputs."""

import numpy as np
import pytest
import torch

from trimtab.trainer.quant import FORMATS, Role

ROLES: tuple[Role, ...] = ("weight", "activation")
SCALED = [name for name in FORMATS if name not in ("fp32", "bf16")]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", SCALED)
def test_a_non_finite_value_poisons_all_that_share_its_scale(name, role, bad):
    x = torch.randn(256, 256, generator=torch.Generator().manual_seed(0))
    clean = FORMATS[name].fake(x, role)
    x[3, 5] = bad
    rows, columns = {
        **{name: (256, 256) for name in FORMATS if name.startswith("fp8-tensor")},
        **{name: (1, 256) for name in FORMATS if name.startswith("fp8-row")},
        "fp8-block": (128 if role == "weight" else 1, 128),
        "fp8-block-32": (32 if role == "weight" else 1, 32),
        "mxfp8": (1, 32),
        "nvfp4": (256, 256) if role == "weight" else (1, 256),
        "mxfp8-rceil": (1, 32),
        "nvfp4-46": (256, 256) if role == "weight" else (1, 256),
        "nvfp4-46-mae": (256, 256) if role == "weight" else (1, 256),
        "nvfp4-pretrain": (256, 256),
    }[name]
    expected = torch.zeros(256, 256, dtype=torch.bool)
    first = 3 if rows == 1 else 0
    expected[first : first + rows, :columns] = True
    for out in (FORMATS[name].fake(x, role), FORMATS[name].dequantize(FORMATS[name].quantize(x, role), role)):
        assert torch.equal(out.isnan(), expected)
        assert torch.equal(out[~expected], clean[~expected])


def test_bf16_rounds_to_eight_significant_bits_and_keeps_non_finite_values():
    x = torch.randn(4096, generator=torch.Generator().manual_seed(4))
    x[:512] = torch.arange(512, 1024) / 512 + 2.0**-9  # ties
    mantissa, exponent = np.frexp(x.numpy().astype(np.float64))
    expected = np.ldexp(np.rint(mantissa * 256), exponent - 8)
    assert torch.equal(FORMATS["bf16"].fake(x, "activation"), torch.from_numpy(expected).float())
    special = torch.tensor([-0.0, torch.inf, -torch.inf, 3.4e38])
    assert FORMATS["bf16"].fake(special, "activation").tolist() == [-0.0, torch.inf, -torch.inf, torch.inf]
    assert FORMATS["bf16"].fake(torch.tensor([torch.nan]), "activation").isnan().all()


def test_fp32_is_the_identity():
    x = torch.randn(3, 5)
    assert torch.equal(FORMATS["fp32"].fake(x, "activation"), x)


@pytest.mark.parametrize("name", [name for name in FORMATS if not name.startswith(("fp8-tensor", "nvfp4-pretrain"))])
def test_a_token_does_not_depend_on_the_others(name):
    x = torch.randn(2, 5, 128, generator=torch.Generator().manual_seed(1))
    together = FORMATS[name].fake(x, "activation")
    alone = FORMATS[name].fake(x[1, 3], "activation")
    assert torch.equal(together[1, 3], alone)


def test_relative_error_on_gaussian_data():
    x = torch.randn(512, 1024, generator=torch.Generator().manual_seed(2))
    error = {
        name: float((FORMATS[name].fake(x, "activation") - x).square().mean().sqrt() / x.square().mean().sqrt())
        for name in FORMATS
    }
    assert error["nvfp4"] == pytest.approx(0.0949, abs=5e-4)
    assert error["nvfp4-46"] == pytest.approx(0.0875, abs=1e-3)
    assert error["fp8-row-e5m2"] == pytest.approx(2 * error["fp8-row"], rel=0.05)
    assert error["bf16"] < error["fp8-row"] < error["mxfp8"] < error["nvfp4-46"] / 2.5


@pytest.mark.parametrize("name", FORMATS)
def test_no_tokens_give_no_tokens(name):
    assert FORMATS[name].fake(torch.zeros(0, 128), "activation").shape == (0, 128)


@pytest.mark.parametrize("name", FORMATS)
def test_inputs_need_not_be_contiguous(name):
    x = torch.randn(256, 256, generator=torch.Generator().manual_seed(3))
    assert torch.equal(FORMATS[name].fake(x.t(), "weight"), FORMATS[name].fake(x.t().contiguous(), "weight"))


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        (
            "nvfp4",
            (64, 40),
            r"up\.weight: dimension 1 \(in_features\) is 40, not divisible by 16, the weight block of nvfp4",
        ),
        ("mxfp8", (64, 48), r"up\.weight: dimension 1 \(in_features\) is 48, not divisible by 32"),
        ("mxfp8-rceil", (32, 16), r"up\.weight: dimension 1 \(in_features\) is 16, not divisible by 32"),
        ("nvfp4-pretrain", (40, 64), r"up\.weight: dimension 0 \(out_features\) is 40, not divisible by 16"),
        ("fp8-row", (32, 16, 2), r"up\.weight: shape \[32, 16, 2\] is not \[out_features, in_features\]"),
    ],
)
def test_a_shape_that_does_not_fit_is_named(name, shape, message):
    with pytest.raises(ValueError, match=message):
        FORMATS[name].check_shape("up.weight", shape)


@pytest.mark.parametrize("name", [name for name in FORMATS if name.startswith(("fp", "bf"))])
def test_formats_whose_layout_has_partial_blocks_take_any_shape(name):
    for shape in [(1, 1), (7, 5), (576, 192), (130, 1)]:
        FORMATS[name].check_shape("up.weight", shape)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", ["fp8-block", "fp8-block-32"])
def test_zeros_that_fill_up_the_last_blocks_change_nothing(name, role, seed):
    x = torch.randn(150, 200, generator=torch.Generator().manual_seed(seed))
    filled = torch.zeros(256, 256)
    filled[:150, :200] = x
    padded, ragged = FORMATS[name].quantize(filled, role), FORMATS[name].quantize(x, role)
    rows, columns = ragged.scale.shape
    assert torch.equal(padded.codes[:150, :200].view(torch.uint8), ragged.codes.view(torch.uint8))
    assert torch.equal(padded.scale[:rows, :columns], ragged.scale)
    assert torch.equal(FORMATS[name].fake(filled, role)[:150, :200], FORMATS[name].fake(x, role))
    assert FORMATS[name].fake(filled, role)[150:].count_nonzero() == 0


@pytest.mark.parametrize("name", ["fp8-block", "fp8-block-32"])
def test_partial_blocks_of_tokens_in_batches_are_those_of_each_token(name):
    x = torch.randn(2, 3, 5, 72, generator=torch.Generator().manual_seed(6))
    together = FORMATS[name].quantize(x, "activation")
    assert together.codes.shape == x.shape
    for index in [(0, 1, 2), (1, 2, 4)]:
        alone = FORMATS[name].quantize(x[index], "activation")
        assert torch.equal(together.scale[index], alone.scale)
        assert torch.equal(FORMATS[name].fake(x, "activation")[index], FORMATS[name].fake(x[index], "activation"))


@pytest.mark.parametrize("name", SCALED)
def test_other_inputs_are_refused(name):
    with pytest.raises(ValueError, match=r"activation: dtype torch\.bfloat16 .* convert it to torch\.float32 first"):
        FORMATS[name].fake(torch.zeros(2, 128, dtype=torch.bfloat16), "activation")
    with pytest.raises(ValueError, match=r"weight: shape \[128\] .* give \[out_features, in_features\]"):
        FORMATS[name].fake(torch.zeros(128), "weight")


def test_what_a_contract_compares_tells_the_formats_apart():
    rules = {"nvfp4-46": "mse, ties to 6", "nvfp4-46-mae": "mae, ties to 6"}
    assert {name: fmt.tie_rule for name, fmt in FORMATS.items() if fmt.tie_rule != "none"} == rules
    for name, fmt in FORMATS.items():
        assert name.startswith(fmt.family)
        assert fmt.scale_free == (fmt.scale_mode == "none")
    scaled = [FORMATS[name] for name in SCALED]
    assert len({(fmt.family, fmt.scale_mode, fmt.tie_rule) for fmt in scaled}) == len(scaled)
