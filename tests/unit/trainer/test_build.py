"""What a configuration names, and which of its mistakes is told first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trimtab.trainer.build import build
from trimtab.trainer.config import ConfigError, validated


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ({"kind": "reasoning_gym", "dataset": "countdwn"}, r"task\.dataset: 'countdwn' .* did you mean countdown"),
        (
            {"kind": "reasoning_gym", "dataset": "chain_sum", "settings": {"tems": 2}},
            r"task\.settings: chain_sum refuses",
        ),
        ({"kind": "questions", "path": "none.jsonl"}, r"task\.path: .*none\.jsonl"),
    ],
)
def test_a_mistake_in_a_text_task_is_told_before_the_model_is_looked_for(
    tmp_path: Path, task: dict[str, Any], told: str
) -> None:
    if task["kind"] == "reasoning_gym":
        pytest.importorskip("reasoning_gym")
    model = {"kind": "huggingface", "path": str(tmp_path / "no-model")}
    with pytest.raises(ConfigError, match=told):
        build(validated({"model": model, "task": task}))
