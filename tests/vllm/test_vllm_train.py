"""Training with vLLM's rollouts: the same run as everywhere, with an agent attached."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from engine_runs import settings
from tiny_models import JOB, contract, logged_steps, run_attached, saved_model, stored_summaries, tiny_run

from trimtab.hooks.sketch import Sign

pytest.importorskip("reasoning_gym")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["off", "thread"])
def test_two_steps_in_nvfp4_are_in_the_ledger_with_finite_mismatch_and_sketches_of_both_signs(
    mode: str, tmp_path: Path
) -> None:
    data = tiny_run(
        saved_model("qwen3", tmp_path / "model"),
        steps=2,
        recipe="nvfp4-rl",
        sampler=settings(dtype="float32").model_dump(),
        asynchrony={"mode": mode},
    )
    data["rollout"]["lag"] = 0
    result = run_attached(data, tmp_path)
    assert result.steps == 2
    for step, line in enumerate(logged_steps(tmp_path / "out")):
        assert line["step"] == step
        assert line["sampler_engine"] == "nvfp4-emulated"
        assert math.isfinite(line["mismatch_std"])
        if mode == "off":  # else the weights that sampled are older
            assert line["mismatch_std"] < 0.1
    assert contract(tmp_path / "out")["differences"] == []
    summaries = stored_summaries(tmp_path / "agent.db", JOB)
    assert [summary.step for summary in summaries] == [0, 1]
    for summary in summaries:
        mismatch = summary.sketches["mismatch"]
        assert math.isfinite(mismatch.pooled.quantile(0.5))
        assert mismatch.sign(Sign.NEGATIVE).n > 0
        assert mismatch.sign(Sign.POSITIVE).n > 0
        assert summary.capabilities is not None
        assert "nvfp4" in summary.capabilities.sampler_formats
