"""Number formats on a CUDA device: the bits of the CPU, and FP8 matmuls by its own kernel."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trimtab.trainer.quant import FORMATS, QuantLinear
from trimtab.trainer.quant.native import FIRST_CAPABILITY

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _device() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.mark.parametrize("role", ["weight", "activation"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_device_rounds_as_the_cpu_does(name, role) -> None:
    x = torch.randn(256, 256, generator=torch.Generator().manual_seed(0))
    x = x * torch.exp2(torch.arange(256)[:, None] % 40.0 - 20)
    assert torch.equal(FORMATS[name].fake(x.cuda(), role).cpu(), FORMATS[name].fake(x, role))


@pytest.mark.parametrize("name", ["fp8-tensor", "fp8-row"])
def test_fp8_runs_natively_of_its_own_accord_close_to_the_emulation(name) -> None:
    if torch.cuda.get_device_capability() < FIRST_CAPABILITY:
        pytest.skip("no FP8 on this device")
    torch.manual_seed(0)
    layer = QuantLinear(nn.Linear(512, 256), FORMATS[name]).cuda()
    x = torch.randn(37, 512, device="cuda")
    assert layer.engine == "fp8-native"
    with torch.no_grad():
        native = layer(x)
        layer.execution = "emulated"
        emulated = layer(x)
    # FP8 tensor cores keep fewer bits than float32 while they add up.
    assert float((native - emulated).norm() / emulated.norm()) < 2e-3
