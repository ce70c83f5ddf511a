"""The warm start is the same on every machine size, and is done once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from trimtab.trainer.config import RunConfig
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
