"""What a key-value cache gives back."""

from __future__ import annotations

import pytest
import torch

from trimtab.trainer.quant.kv_cache import KV_FORMATS, stored

E4M3 = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fp8_is_the_nearest_value_of_e4m3(seed: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = (torch.randn(4, 3, 16, generator=generator) * torch.logspace(-4, 3, 16)).to(dtype)
    got = stored(x, "fp8")
    assert got.dtype == dtype
    grid = E4M3[E4M3.isfinite()].double()
    distance = (x.double().flatten()[:, None] - grid).abs()
    assert got.double().flatten().sub(x.double().flatten()).abs().equal(distance.amin(1))


def test_fp8_saturates_and_keeps_nan() -> None:
    x = torch.tensor([1e6, -1e6, torch.inf, 448.0, 0.0, torch.nan])
    assert stored(x, "fp8")[:5].tolist() == [448.0, -448.0, 448.0, 448.0, 0.0]
    assert stored(x, "fp8")[5].isnan()


def test_none_is_the_tensor_itself_and_anything_else_is_refused() -> None:
    x = torch.randn(3)
    assert stored(x, "none") is x
    assert KV_FORMATS == ("none", "fp8")
    with pytest.raises(ValueError, match="kv_format: 'int8' is none of none, fp8"):
        stored(x, "int8")
