"""Training on a CUDA device: the steps of the CPU, and checkpoints that either goes on from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from trimtab.trainer.config import RunConfig, validated
from trimtab.trainer.run import STEPS, execute

pytestmark = pytest.mark.gpu


def configured(device: str, **controls: object) -> RunConfig:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return validated(
        {
            "steps": 4,
            "task": {"digits": 3},
            "model": {"width": 32, "layers": 1, "heads": 2, "hidden": 32, "device": device},
            "warm_start": {"steps": 60, "batch": 64},
            "rollout": {"prompts": 6, "group_size": 4, "lag": 1, "head": 5},
            "shadow": {"every": 1},
            "evaluation": {"prompts": 32},
            "controls": {"ratio_reference": "sampler", **controls},
        }
    )


def losses(folder: Path) -> list[float]:
    rows: list[dict[str, Any]] = [json.loads(line) for line in (folder / STEPS).read_text().splitlines()]
    return [row["loss"] for row in rows]


@pytest.mark.parametrize(
    "controls",
    [
        {"sampler_format": "fp32", "train_format": "fp32"},
        {"sampler_format": "fp32", "train_format": "fp32", "centering": True, "kl_coef": 0.01},
    ],
)
def test_a_device_makes_the_steps_of_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, controls: dict[str, object]
) -> None:
    """The first step is the same but for rounding; later ones part where a sampled token does."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for device in ("cpu", "cuda"):
        execute(configured(device, **controls), url="memory:", job="t", out=tmp_path / device)
    assert losses(tmp_path / "cuda")[0] == pytest.approx(losses(tmp_path / "cpu")[0], abs=1e-4)


@pytest.mark.parametrize("number_format", ["bf16", "fp8-row", "nvfp4"])
@pytest.mark.parametrize("mode", ["off", "thread", "process"])
def test_every_way_of_sampling_trains_on_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number_format: str, mode: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = configured("cuda", sampler_format=number_format, train_format=number_format)
    data = config.model_dump()
    data["asynchrony"]["mode"] = mode
    data["rollout"]["lag"] = 0 if mode != "off" else 1
    result = execute(validated(data), url="memory:", job="t", out=tmp_path / "run")
    assert result.steps == 4
    assert all(abs(loss) < 10 for loss in losses(tmp_path / "run"))


def test_a_checkpoint_goes_from_one_kind_of_device_to_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for first, then in (("cuda", "cpu"), ("cpu", "cuda")):
        out = tmp_path / first
        execute(configured(first).model_copy(update={"steps": 2}), url="memory:", job="t", out=out)
        assert execute(configured(then), url="memory:", job="t", out=out, resume=True).steps == 4
