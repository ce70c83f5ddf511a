"""Loaded by schemathesis: two of three requests are about something that there is, and none ends its own access."""

from __future__ import annotations

import os
from typing import Any
from zlib import crc32

import schemathesis
from populated import JOBS

KNOWN = {"job": JOBS, "detector": ("mismatch", "reward", "asymmetry"), "number": (1, 2, 3)}
OWN_TOKEN = os.environ["TRIMTAB_FUZZ_TOKEN_ID"]
"""Whoever revokes it, or replaces its secret, is refused everything from there on, and finds nothing more."""


@schemathesis.hook
def map_path_parameters(_context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Names and numbers of what `populate` made, chosen by what was drawn, so that a seed gives the same again."""
    for name, known in KNOWN.items():
        if path_parameters is not None and name in path_parameters:
            drawn = crc32(repr(path_parameters[name]).encode("utf-8", "backslashreplace"))
            if drawn % 3:
                path_parameters[name] = known[drawn // 3 % len(known)]
    return path_parameters


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: dict[str, Any]) -> None:
    """Leave the token alone that all of this is asked with: schemathesis learns ids from the answers."""
    if OWN_TOKEN in str(case.path_parameters.get("token", "")):
        case.path_parameters["token"] = "nobody"
