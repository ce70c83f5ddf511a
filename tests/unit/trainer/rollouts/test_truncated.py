"""What a cache holds that rounds towards zero."""

from __future__ import annotations

import pytest
import torch

from trimtab.trainer.quant.kv_cache import stored
from trimtab.trainer.rollouts.truncated import truncated


def grid(kv_format: str) -> torch.Tensor:
    """All finite values of the format, in order."""
    dtype = torch.float8_e4m3fn if kv_format == "fp8" else torch.float8_e5m2
    values = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    return values[values.isfinite()].unique()


@pytest.mark.parametrize("kv_format", ["fp8", "fp8-e5m2"])
def test_each_value_becomes_the_largest_of_the_grid_that_is_not_beyond_it(kv_format: str) -> None:
    generator = torch.Generator().manual_seed(0)
    exponents = torch.randint(-24, 22, (4096,), generator=generator)
    x = torch.randn(4096, generator=generator) * torch.exp2(exponents.float())
    magnitudes = grid(kv_format)[grid(kv_format) >= 0]
    expected = torch.stack([magnitudes[magnitudes <= abs(value)].max() for value in x.tolist()]) * x.sign()
    assert torch.equal(truncated(x, kv_format), expected)
    assert torch.equal(truncated(x.to(torch.bfloat16), kv_format), truncated(x.to(torch.bfloat16).float(), kv_format))


@pytest.mark.parametrize("kv_format", ["fp8", "fp8-e5m2"])
def test_what_is_on_the_grid_stays(kv_format: str) -> None:
    values = grid(kv_format)
    assert torch.equal(truncated(values, kv_format), values)
    assert torch.equal(stored(values, kv_format), values)
