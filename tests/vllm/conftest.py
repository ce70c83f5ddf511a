"""Real engines of vLLM, on tiny random models; skipped, with the reason, where vLLM is not installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from engine_runs import END, PAD, prepared, settings

from trimtab.trainer.rollouts.vllm_sampler import VllmSampler

HERE = Path(__file__).parent
WITHOUT = "vLLM is not installed in this environment: make vllm, then .venv-vllm/bin/pytest -m vllm"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is here, and let vLLM's own warnings be."""
    installed = importlib.util.find_spec("vllm") is not None
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.vllm)
            item.add_marker(pytest.mark.filterwarnings("default"))
            if not installed:
                item.add_marker(pytest.mark.skip(reason=WITHOUT))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmSampler]:
    """An engine in float32, of a model whose head is its own; it keeps old keys and values."""
    folder = tmp_path_factory.mktemp("qwen3") / "model"
    sampler = VllmSampler(folder, prepared(folder)[1], settings(dtype="float32"), end=END, pad=PAD, in_flight="keep")
    yield sampler
    sampler.close()
