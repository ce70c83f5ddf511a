"""What a key-value cache gives back."""

import pytest
import torch

from trimtab.trainer.quant.kv_cache import stored


def test_without_a_format_it_is_the_tensor_itself():
    x = torch.randn(2, 3)
    assert stored(x, "none") is x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fp8_rounds_to_the_nearest_of_all_its_values_and_saturates(dtype):
    x = (torch.randn(64, 64, generator=torch.Generator().manual_seed(2)) * 200).to(dtype)
    x[0, 0], x[0, 1] = 1e6, -1e6
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    grid = codes[codes.isfinite()].unique()
    back = stored(x, "fp8")
    distance = (x.float()[..., None] - grid).abs()
    assert back.dtype == dtype
    assert torch.equal((x.float() - back.float()).abs(), distance.min(-1).values)
    assert back[0, :2].tolist() == [448.0, -448.0]


def test_an_unknown_format_is_refused():
    with pytest.raises(ValueError, match="kv_format: 'int8' is none of none, fp8"):
        stored(torch.zeros(1), "int8")
