"""The cost of quantised linear layers: every format once, in order."""

import pytest

from trimtab.api.bench.linear import SCALED, _at_width
from trimtab.trainer.quant import kernels


def test_every_format_that_fits_is_measured_on_every_backend():
    costs = _at_width(64, rounds=10)
    backends = ["native", "torch"] if kernels.backend() == "native" else ["torch"]
    assert [(cost.kernels, cost.format) for cost in costs] == [(b, name) for b in backends for name in SCALED]
    for cost in costs:
        assert 0 < cost.ratio_p10 <= cost.ratio <= cost.ratio_p90
        assert cost.milliseconds > 0
        assert cost.width == 64


def test_the_plain_formats_are_not_measured():
    assert not {"fp32", "bf16"} & set(SCALED)


@pytest.mark.parametrize("name", ["fp8-block", "mxfp8-rceil", "nvfp4-46-mae", "nvfp4-pretrain"])
def test_new_formats_are_measured_without_being_listed(name):
    assert name in SCALED
