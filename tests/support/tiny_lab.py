"""A lab whose runs take a second each."""

from __future__ import annotations

from pathlib import Path

TINY = """
title = "tiny <lab>"
note = "two channels are scaled & nothing else"
seeds = [0, 1]
ladder = false

[run]
steps = 12
task.digits = 3
model = { width = 32, hidden = 64 }
warm_start.steps = 100
rollout = { prompts = 8, group_size = 8 }
shadow.every = 4
evaluation.prompts = 8
checkpoint.every = 4

[[formats]]
name = "bf16"

[[formats]]
name = "nvfp4"
title = "NVFP4"
set = { controls.sampler_format = "nvfp4" }

[[corrections]]
name = "none"

[[corrections]]
name = "centering"
at = [2, 8]
controls = { ratio_reference = "recomputed", centering = true }
only = { format = ["nv*"] }
"""


def tiny_lab(folder: Path, *more: str) -> Path:
    """The lab's file, with `more` at its end."""
    path = folder / "tiny.toml"
    path.write_text("\n".join((TINY, *more)))
    return path
