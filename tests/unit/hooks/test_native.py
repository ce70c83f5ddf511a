"""Where the compiled form comes from, and what happens without it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from token_batches import RECOMPUTED, accumulated, assert_same, expected, random_batch

from trimtab.hooks import native
from trimtab.hooks.accumulate import Accumulator
from trimtab.hooks.records import TokenBatch


@pytest.mark.parametrize("compiler", ["/nowhere/cc", "false"])
def test_without_a_compiler_the_work_is_done_by_numpy(
    compiler: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("trimtab.hooks.accumulate.LOADER", loader := native.Loader())
    loaded = loader.load(wait=True)
    assert loaded.measure is None
    assert loaded.reason
    assert_same(accumulated(random_batch(13)), expected(random_batch(13), RECOMPUTED), relative=1e-14)


def test_until_the_compiler_is_done_the_work_is_done_by_numpy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A compiler that takes its time makes no step wait, and its library is taken once it is there."""
    gate, compiler = tmp_path / "gate", tmp_path / "slow-cc"
    compiler.write_text(f'#!/bin/sh\nwhile [ ! -e {gate} ]; do sleep 0.01; done\nexec cc "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("trimtab.hooks.accumulate.LOADER", loader := native.Loader())
    accumulator = Accumulator()
    accumulator.add(TokenBatch(**random_batch(14)))
    assert loader.load().reason == "being compiled"
    first = accumulator.drain().read().copy()
    gate.touch()
    loader.load(wait=True)
    accumulator.add(TokenBatch(**random_batch(14)))
    np.testing.assert_allclose(accumulator.drain().read(), first, rtol=1e-6)
