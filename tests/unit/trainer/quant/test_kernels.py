"""The compiled kernels: the same bits as torch, and nothing lost without them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from trimtab.trainer.quant import FORMATS, Role, kernels

native = pytest.mark.skipif(kernels.backend() == "torch", reason=f"no kernels: {kernels.load().reason}")


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal to the bit; any NaN equals any other."""
    return bool(((a.view(torch.int32) == b.view(torch.int32)) | (a.isnan() & b.isnan())).all())


def samples() -> dict[str, Tensor]:
    """A million values each."""
    generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(4), "little"))
    shape = (1024, 1024)
    normal = torch.randn(shape, generator=generator)
    exponents = torch.randint(-145, 127, shape, generator=generator).float()
    patterns = torch.randint(-(2**31), 2**31, shape, generator=generator).to(torch.int32).view(torch.float32)
    special = normal * torch.exp2(exponents[:, :1] / 4)
    special[::7, ::5] = 0.0
    special[::11, ::3] = -0.0
    special[::64, 17] = torch.tensor([torch.nan, torch.inf, -torch.inf, -torch.nan]).repeat(4)
    special[::63] *= 1e-30
    return {
        "normal": normal,
        "any exponent": normal * torch.exp2(exponents),
        "rows of any exponent": normal * torch.exp2(exponents[:, :1]),
        "bfloat16": normal.bfloat16().float(),
        "ties": (normal * 8).round() / 8,
        "special": special,
        "finite bit patterns": torch.where(patterns.isfinite(), patterns, 1.0),
        "all bit patterns": patterns,
    }


@native
@pytest.mark.parametrize(
    ("name", "role"),
    [(name, role) for name in FORMATS for role in ("weight", "activation")]
    + [(name, "gradient") for name in FORMATS if name != "nvfp4-pretrain"],  # which rounds those at random
)
def test_native_equals_torch_to_the_bit(name: str, role: Role):
    for kind, x in samples().items():
        fmt = FORMATS[name]
        assert same_bits(fmt.fake(x, role), fmt.dequantize(fmt.quantize(x, role), role)), kind


@native
@pytest.mark.parametrize("columns", [16, 48, 112, 128, 272, 400])
@pytest.mark.parametrize("name", ["nvfp4", "nvfp4-46", "nvfp4-46-mae", "nvfp4-pretrain"])
def test_runs_of_blocks_end_anywhere(name, columns):
    fmt = FORMATS[name]
    for rows in (1, 3, 16, 17, 48):
        x = torch.randn(rows, columns) * torch.exp2(torch.randint(-9, 9, (rows, 1)).float())
        for role in ("weight", "activation") if rows % fmt.block("weight")[0] == 0 else ("activation",):
            assert same_bits(fmt.fake(x, role), fmt.dequantize(fmt.quantize(x, role), role))


@native
@pytest.mark.parametrize("role", ["weight", "activation"])
@pytest.mark.parametrize("columns", [1, 7, 31, 33, 100, 128, 129, 300])
@pytest.mark.parametrize("name", ["fp8-block", "fp8-block-32"])
def test_blocks_end_where_the_tensor_does(name, columns, role):
    fmt = FORMATS[name]
    for rows in (1, 3, 32, 45, 128, 200):
        x = torch.randn(rows, columns) * torch.exp2(torch.randint(-9, 9, (rows, 1)).float())
        if rows > 3:
            x[-1, -1] = torch.nan
        assert same_bits(fmt.fake(x, role), fmt.dequantize(fmt.quantize(x, role), role))


@pytest.fixture(autouse=True)
def _kernels_wanted(monkeypatch):
    """Also where the whole suite runs without them."""
    monkeypatch.delenv("TRIMTAB_NO_KERNELS", raising=False)


def load_anew() -> kernels.Loaded:
    return kernels.load.__wrapped__()


def test_they_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("TRIMTAB_NO_KERNELS", "1")
    loaded = load_anew()
    assert loaded.library is None
    assert loaded.reason == "TRIMTAB_NO_KERNELS is set"


def test_a_missing_compiler_is_reported(monkeypatch, tmp_path):
    monkeypatch.setenv("CC", str(tmp_path / "no-such-compiler"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    loaded = load_anew()
    assert loaded.library is None
    assert "no-such-compiler" in loaded.reason


def test_a_failing_compiler_is_reported_with_its_message(monkeypatch, tmp_path):
    compiler = tmp_path / "broken-cc"
    compiler.write_text("#!/bin/sh\necho 'internal compiler error' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    loaded = load_anew()
    assert loaded.library is None
    assert loaded.reason == f"{compiler} failed: internal compiler error"
    assert list((tmp_path / "cache" / "trimtab").iterdir()) == []


def test_a_library_that_is_no_library_is_reported(monkeypatch, tmp_path):
    compiler = tmp_path / "odd-cc"
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho junk > "$2"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    loaded = load_anew()
    assert loaded.library is None
    assert loaded.reason.startswith("OSError: ")


@native
def test_processes_that_start_together_share_one_library(tmp_path: Path):
    program = "from trimtab.trainer.quant import kernels; print(kernels.backend())"
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    started = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate()[0].strip() for process in started] == ["native"] * 3
    assert [path.suffix for path in (tmp_path / "trimtab").iterdir()] == [".so"]


def test_without_kernels_the_results_are_the_same():
    program = (
        "import hashlib, torch; from trimtab.trainer.quant import FORMATS, kernels\n"
        "x = torch.randn(128, 128, generator=torch.Generator().manual_seed(0))\n"
        "outs = [f.fake(x, r).numpy().tobytes() for f in FORMATS.values() for r in ('weight', 'activation')]\n"
        "print(kernels.backend(), hashlib.sha256(b''.join(outs)).hexdigest())"
    )

    def run(**extra: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", program], env=os.environ | extra, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    without, usual = run(TRIMTAB_NO_KERNELS="1"), run()
    assert without[0] == "torch"
    assert without[1] == usual[1]
