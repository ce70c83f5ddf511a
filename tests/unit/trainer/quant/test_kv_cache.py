"""What a key-value cache gives back."""

import pytest
import torch

from trimtab.trainer.quant.kv_cache import stored


def test_without_a_format_it_is_the_tensor_itself():
    x = torch.randn(2, 3)
    assert stored(x, "none") is x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("kv_format", "elements", "largest"), [("fp8", torch.float8_e4m3fn, 448), ("fp8-e5m2", torch.float8_e5m2, 57344)]
)
def test_fp8_rounds_to_the_nearest_of_all_its_values_and_saturates(kv_format, elements, largest, dtype):
    x = (torch.randn(64, 64, generator=torch.Generator().manual_seed(2)) * largest / 2).to(dtype)
    x[0, 0], x[0, 1] = 1e6, -1e6
    codes = torch.arange(256, dtype=torch.uint8).view(elements).float()
    grid = codes[codes.isfinite()].unique()
    back = stored(x, kv_format)
    distance = (x.float()[..., None] - grid).abs()
    assert back.dtype == dtype
    assert torch.equal((x.float() - back.float()).abs(), distance.min(-1).values)
    assert back[0, :2].tolist() == [largest, -largest]


def test_an_unknown_format_is_refused():
    with pytest.raises(ValueError, match="kv_format: 'int8' is none of none, fp8, fp8-e5m2"):
        stored(torch.zeros(1), "int8")
