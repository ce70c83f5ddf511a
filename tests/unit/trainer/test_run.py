"""A whole run: its files, and that going on from a checkpoint is going on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from trimtab.trainer.checkpoint import CheckpointError, read_checkpoint
from trimtab.trainer.config import RunConfig
from trimtab.trainer.run import CHECKPOINT, RESULT, STEPS, execute


def steps(folder: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (folder / STEPS).read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in ("seconds", "attempt")} for row in rows]


def test_a_run_leaves_its_files(tiny: RunConfig, tmp_path: Path) -> None:
    seen: list[int] = []
    result = execute(tiny, url="memory:", job="t", out=tmp_path, on_step=lambda record: seen.append(record.step))
    assert seen == list(range(6))
    assert [row["step"] for row in steps(tmp_path)] == seen
    assert RunConfig.model_validate_json((tmp_path / "config.json").read_text()) == tiny
    written = json.loads((tmp_path / RESULT).read_text())
    assert written["reward_eval_bf16"] == result.reward_eval_bf16
    assert result.steps == 6
    assert result.sampler_format == "nvfp4"
    assert result.reward_eval_bf16 is not None
    assert 0 <= result.reward_eval_bf16 <= 1


def test_a_resumed_run_is_bit_identical(tiny: RunConfig, tmp_path: Path) -> None:
    through, parts = tmp_path / "through", tmp_path / "parts"
    execute(tiny, url="memory:", job="t", out=through)
    execute(tiny.model_copy(update={"steps": 4}), url="memory:", job="t", out=parts)
    execute(tiny, url="memory:", job="t", out=parts, resume=True)
    assert steps(parts) == steps(through)
    last, expected = read_checkpoint(parts / CHECKPOINT), read_checkpoint(through / CHECKPOINT)
    assert last["attempt"] == 1
    for name, value in expected["model"].items():
        assert torch.equal(last["model"][name], value), name


def test_a_resumed_run_keeps_the_overrides_of_its_agent(tiny: RunConfig, tmp_path: Path) -> None:
    execute(tiny.model_copy(update={"steps": 2}), url="memory:", job="t", out=tmp_path)
    state = read_checkpoint(tmp_path / CHECKPOINT)
    state |= {"overrides": {"centering": True, "ratio_reference": "recomputed"}, "generation": 5}
    torch.save(state, tmp_path / CHECKPOINT)
    execute(tiny.model_copy(update={"steps": 3}), url="memory:", job="t", out=tmp_path, resume=True)
    last = json.loads((tmp_path / STEPS).read_text().splitlines()[-1])
    assert last["generation"] == 5
    assert last["controls"]["centering"] is True


def test_a_checkpoint_of_another_configuration_is_refused(tiny: RunConfig, tmp_path: Path) -> None:
    execute(tiny.model_copy(update={"steps": 1}), url="memory:", job="t", out=tmp_path)
    with pytest.raises(CheckpointError, match="another configuration"):
        execute(tiny.model_copy(update={"seed": 9}), url="memory:", job="t", out=tmp_path, resume=True)


@pytest.mark.parametrize("content", [None, b"", b"not a checkpoint"])
def test_a_checkpoint_that_cannot_be_read_is_named(tiny: RunConfig, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / CHECKPOINT).write_bytes(content)
    with pytest.raises(CheckpointError, match=CHECKPOINT):
        execute(tiny, url="memory:", job="t", out=tmp_path, resume=True)
