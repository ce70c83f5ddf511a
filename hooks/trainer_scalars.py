"""What somebody else's trainer says of a step, as numbers of ours."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from trimtab.hooks.attachment import Attachment


def scalars_from(attachment: Attachment, metrics: Any, names: Mapping[str, str]) -> dict[str, float]:
    """Those of `metrics` that are named; nothing is raised, and what is no number is left out and counted.

    Args:
        attachment: that counts.
        metrics: a mapping, or None. A value with an entry for each of several batches is their mean.
        names: of ours by theirs.
    """
    scalars = {}
    for theirs, ours in names.items():
        number = attachment.tried(f"scalars.{ours}", partial(_mean, metrics, theirs))
        if number is not None:
            scalars[ours] = number
    return scalars


def _mean(metrics: Any, name: str) -> float | None:
    value = metrics.get(name) if metrics is not None else None
    if value is None:
        return None
    if hasattr(value, "detach"):  # a tensor, of a type that numpy may not have
        value = value.detach().double().cpu()
    entries = np.asarray(value, dtype=np.float64)
    return float(entries.mean()) if entries.size else None
