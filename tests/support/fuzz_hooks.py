"""Loaded by schemathesis: two of three requests are about something that there is."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import schemathesis
from populated import JOBS

KNOWN = {"job": JOBS, "detector": ("mismatch", "reward", "asymmetry"), "number": (1, 2, 3)}


@schemathesis.hook
def map_path_parameters(_context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Names and numbers of what `populate` made, chosen by what was drawn, so that a seed gives the same again."""
    for name, known in KNOWN.items():
        if path_parameters is not None and name in path_parameters:
            drawn = crc32(repr(path_parameters[name]).encode("utf-8", "backslashreplace"))
            if drawn % 3:
                path_parameters[name] = known[drawn // 3 % len(known)]
    return path_parameters
