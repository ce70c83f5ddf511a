"""The warm start is the same on every machine size, and is done once."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from trimtab.trainer.config import RunConfig, validated
from trimtab.trainer.warm_start import warm_weights


def test_the_weights_do_not_depend_on_the_number_of_threads(
    tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for threads in (1, 2):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / str(threads)))
        torch.set_num_threads(threads)
        results.append(warm_weights(tiny))
        assert torch.get_num_threads() == threads
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


def test_the_second_time_nothing_is_trained(tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    steps: list[int] = []
    first = warm_weights(tiny, lambda done, _: steps.append(done))
    assert steps == list(range(1, tiny.warm_start.steps + 1))
    again = warm_weights(tiny, lambda done, _: steps.append(done))
    assert len(steps) == tiny.warm_start.steps
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_another_task_model_or_recipe_has_its_own(
    tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    warm_weights(tiny)
    warm_weights(tiny.model_copy(update={"seed": 5}))  # the run's seed is no part of it
    assert len(list((tmp_path / "trimtab").glob("warm-start-*.pt"))) == 1
    warm_weights(tiny.model_copy(update={"warm_start": tiny.warm_start.model_copy(update={"steps": 5})}))
    assert len(list((tmp_path / "trimtab").glob("warm-start-*.pt"))) == 2


def test_caches_of_sums_modulo_ten_have_the_name_that_they_had_without_a_modulus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    told = (
        '2|{"kind":"running_sum","digits":8}|{"width":64,"layers":2,"heads":4,"hidden":256}|'
        '{"steps":0,"batch":128,"lr":0.003,"error_rate":0.08,"seed":0}'
    )
    warm_weights(validated({"warm_start": {"steps": 0}}))
    (path,) = (tmp_path / "trimtab").glob("warm-start-*.pt")
    assert path.stem == f"warm-start-{hashlib.sha256(told.encode()).hexdigest()[:16]}"


def test_another_modulus_has_its_own_cache_and_its_own_vocabulary(
    tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sixty = tiny.model_copy(update={"task": tiny.task.model_copy(update={"modulus": 60})})
    assert warm_weights(tiny)["head.weight"].shape == (16, 32)
    assert warm_weights(sixty)["head.weight"].shape == (64, 32)
    assert warm_weights(sixty)["embedding.weight"].shape == (64, 32)
