"""What one framework's logged keys mean: a visible table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from trimtab.api.tail.assembly import Axis

Censored = Literal["above", "below"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """Of one key."""

    name: str = ""
    """trimtab's name for the same thing; empty where it has none, and the key keeps its own."""
    says: str
    """What the number is, for a person."""
    factor: float = 1.0
    offset: float = 0.0
    """The value is `offset + factor * logged`."""
    fraction: bool = False
    """It is a share in [0, 1]; anything else is not observed."""
    censored: Censored | None = None
    """It is logged after a clamp or a mask: the true value lies at it or above, or at it or below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """How one framework logs."""

    name: str
    title: str
    """As its makers write it, with the version that was read."""
    keys: Mapping[str, Meaning]
    """By key, without the prefix. Of several keys with one name the first that is logged counts, and the others keep
    their own."""
    marks: tuple[str, ...]
    """Keys that it is told by, without the prefix."""
    prefixes: tuple[str, ...] = ()
    """That may stand before a key of training."""
    axis: Axis = field(default_factory=Axis)
    """What it counts as steps."""
    blind: tuple[str, ...] = field(default=())
    """What its logs cannot show, a sentence each."""

    def bare(self, key: str) -> str:
        """A key without the prefix."""
        return next((key[len(each) :] for each in self.prefixes if key.startswith(each)), key)

    def meaning(self, key: str) -> Meaning | None:
        """What a logged key means; None where the table does not say."""
        return self.keys.get(self.bare(key)) or self.keys.get(key)
