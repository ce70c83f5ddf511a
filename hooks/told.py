"""What the ranks tell each other once a step, as float64 values that are summed over them, behind what they measured.

    [0] attempt     rank 0's
    [1] off         1 where a person has switched rank 0 off
    [2] ranks       1 from each
    [3] failed      1 from each on which a measurement failed
    [4] stopped     1 from each whose reporting has failed for good
    [5] over        1 where rank 0 ends a pause by itself
    [6] length      bytes of what follows
    [7...]          rank 0's accepted overrides as JSON, six bytes a value, which float64 holds exactly

Ranks above 0 leave zeros where rank 0 speaks, so that the sum is what it said. The overrides are those that rank 0 lets
through, not the command, so that no rank can come to another conclusion; a rank takes them where their generation is
newer than its own, and no rank can do so at another step than the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.fence import Accepted
from trimtab.hooks.wire import decode, encode

Array = NDArray[np.float64]

CAPACITY = 6 * 800
"""Bytes of overrides; every control overridden at once, with its longest value, takes less than half."""
_BYTES = 6
_HEADER = 7
BLOCK = _HEADER + CAPACITY // _BYTES
"""Values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one rank says, and what all of them said together.

    >>> both = Told.of(Told(attempt=3, off=True).block() + Told(failed=1).block())
    >>> (both.attempt, both.off, both.ranks, both.failed)
    (3, True, 2, 1)
    """

    attempt: int = 0
    off: bool = False
    accepted: Accepted | None = None
    """None where nothing is to change."""
    ranks: int = 1
    failed: int = 0
    stopped: int = 0
    over: bool = False

    def block(self) -> Array:
        """As values, [BLOCK]. Overrides that are too large for it are refused together."""
        said = b"" if self.accepted is None else _fitting(self.accepted)
        block = np.zeros(BLOCK)
        block[:_HEADER] = (self.attempt, self.off, self.ranks, self.failed, self.stopped, self.over, len(said))
        words = np.zeros((-(-len(said) // _BYTES), 8), dtype=np.uint8)
        padded = said.ljust(len(words) * _BYTES, b"\0")
        words[:, :_BYTES] = np.frombuffer(padded, dtype=np.uint8).reshape(-1, _BYTES)
        block[_HEADER : _HEADER + len(words)] = words.view("<u8")[:, 0]
        return block

    @classmethod
    def of(cls, block: Array) -> Self:
        """From the sum of all ranks' blocks, [BLOCK]."""
        attempt, off, ranks, failed, stopped, over, length = block[:_HEADER].astype(np.int64).tolist()
        words = np.ascontiguousarray(block[_HEADER:].astype("<u8")).view(np.uint8).reshape(-1, 8)
        said = words[:, :_BYTES].tobytes()[:length]
        accepted = decode(Accepted, said) if length else None
        return cls(
            attempt=attempt,
            off=bool(off),
            accepted=accepted,
            ranks=ranks,
            failed=failed,
            stopped=stopped,
            over=bool(over),
        )


def _fitting(accepted: Accepted) -> bytes:
    said = encode(accepted)
    if len(said) <= CAPACITY:
        return said
    refusal = f"overrides: {len(said)} bytes with the reasons of those refused, at most {CAPACITY}"
    return encode(replace(accepted, overrides={}, refusals=(refusal,)))
