"""Keys that were always there, and are not any more."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

ALWAYS = 20
"""Steps in a row that a name is in before its absence is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """How long each name has been in every step; plain data."""

    attempt: int = -1
    """That it is about."""
    runs: dict[str, int] = field(default_factory=dict)
    """Steps in a row, by name."""
    gone: tuple[str, ...] = ()
    """Names that were in each of `ALWAYS` steps, and in none since."""

    def seen(self, attempt: int, names: Collection[str]) -> Presence:
        """After a whole step with these names. One that has none of the usual names is another kind of step, such as
        an evaluation, and says nothing."""
        known = self if attempt == self.attempt else Presence(attempt=attempt)
        usual = [name for name, run in known.runs.items() if run >= ALWAYS]
        if usual and not any(name in names for name in usual):
            return known
        missing = [name for name in usual if name not in names]
        gone = tuple(name for name in (*known.gone, *missing) if name not in names)
        runs = {name: known.runs.get(name, 0) + 1 for name in names}
        return Presence(attempt=attempt, runs=runs, gone=gone)
