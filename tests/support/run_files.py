"""What a run has left in its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trimtab.trainer.checkpoint import Checkpoints
from trimtab.trainer.run import CHECKPOINTS, STEPS


def steps(folder: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (folder / STEPS).read_text().splitlines()]
    return [
        {key: value for key, value in row.items() if key not in ("rollout_seconds", "seconds", "attempt")}
        for row in rows
    ]


def newest(folder: Path) -> dict[str, Any]:
    return Checkpoints(folder / CHECKPOINTS, keep=5).newest()
