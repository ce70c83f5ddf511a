"""The formats that torchao has too, on the same tensors."""

import warnings

import pytest
import torch
from torch import Tensor

from trimtab.trainer.quant import FORMATS

with warnings.catch_warnings():  # about extensions that its wheel was not built for
    warnings.simplefilter("ignore")
    mx_tensor = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor")
    nvfp4_tensor = pytest.importorskip("torchao.prototype.mx_formats.nvfp4_tensor")
    config = pytest.importorskip("torchao.prototype.mx_formats.config")

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])


def samples(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(64, 256, generator=generator)
    outliers = normal.clone()
    outliers[:, 7] *= 64
    return {
        "normal": normal,
        "outlier channel": outliers,
        "rows of many magnitudes": normal * torch.exp2(torch.randint(-60, 60, (64, 1), generator=generator).float()),
        "bfloat16": normal.bfloat16().float(),
        "ties": (normal * 8).round() / 8,
    }


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("name", "mode"), [("mxfp8", "FLOOR"), ("mxfp8-rceil", "RCEIL")])
def test_mxfp8_equals_torchao_to_the_bit(name, mode, seed):
    for kind, x in samples(seed).items():
        scale, codes = mx_tensor.to_mx(x, torch.float8_e4m3fn, 32, config.ScaleCalculationMode[mode])
        quantised = FORMATS[name].quantize(x, "activation")
        assert torch.equal(quantised.scale.view(torch.uint8), scale.view(torch.uint8)), kind
        assert torch.equal(quantised.codes.view(torch.uint8), codes.view(torch.uint8)), kind


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nvfp4_weights_equal_those_of_torchao_but_for_the_order_of_its_products(seed):
    x = samples(seed)["normal"]
    global_scale = x.abs().max() / (448 * 6)
    scale, packed = nvfp4_tensor.nvfp4_quantize(x, 16, global_scale)
    nibbles = torch.stack([packed & 15, packed >> 4], dim=-1).reshape(64, 16, 16)
    theirs = E2M1[nibbles.int()] * (scale.float() * global_scale)[..., None]
    ours = FORMATS["nvfp4"].fake(x, "weight").reshape(64, 16, 16)
    same_scale = FORMATS["nvfp4"].quantize(x, "weight").scale.float() == scale.float()
    assert same_scale.float().mean() > 0.999
    close = torch.isclose(ours[same_scale], theirs[same_scale], rtol=1e-5, atol=0)
    assert close.float().mean() > 0.9999
