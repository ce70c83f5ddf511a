"""A run small enough for a test: three digits, a narrow model, a warm start of a second."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from trimtab.trainer.config import RunConfig, validated


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of warm starts for the session."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def tiny(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """Six steps of NVFP4 rollouts, two steps stale."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_folder))
    torch.set_num_threads(1)
    return validated(
        {
            "steps": 6,
            "task": {"digits": 3},
            "model": {"width": 32, "layers": 1, "heads": 2, "hidden": 32},
            "warm_start": {"steps": 60, "batch": 64},
            "rollout": {"prompts": 6, "group_size": 4, "lag": 2, "head": 5},
            "outliers": {"channels": 1, "scale": 16.0},
            "shadow": {"every": 1},
            "evaluation": {"prompts": 32},
            "controls": {"ratio_reference": "sampler", "sampler_format": "nvfp4"},
        }
    )
