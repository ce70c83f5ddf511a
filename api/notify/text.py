"""Text that users wrote, made fit for a message: no lone surrogates, no control characters, not too long."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

MORE = "…"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Without what cannot be sent, or would let text pose as something else."""
    return _CONTROL.sub(" ", text.encode("utf-8", "replace").decode())


def cut(text: str, limit: int, escape: Callable[[str], str] = str) -> str:
    """At most `limit` characters of the clean text, each escaped by itself, so that no escape is cut in two."""
    pieces: list[str] = []
    length = 0
    letters = clean(text)
    for place, letter in enumerate(letters):
        piece = escape(letter)
        reserve = 0 if place == len(letters) - 1 else len(MORE)
        if length + len(piece) > limit - reserve:
            return "".join(pieces) + MORE
        pieces.append(piece)
        length += len(piece)
    return "".join(pieces)


def measured(evidence: Mapping[str, Any], limit: int = 12) -> str:
    """Numbers in one line, at most `limit` of them."""
    shown = [f"{name} = {_number(value)}" for name, value in list(evidence.items())[:limit]]
    left = len(evidence) - len(shown)
    return ", ".join(shown) + (f", and {left} more" if left > 0 else "")


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
