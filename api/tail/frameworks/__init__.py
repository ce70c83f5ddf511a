"""What keys mean, by framework: one visible table each."""

from __future__ import annotations

from collections.abc import Collection

from trimtab.api.tail.frameworks.framework import Censored, Framework, Meaning
from trimtab.api.tail.frameworks.generic import GENERIC
from trimtab.api.tail.frameworks.nemo_rl import NEMO_RL
from trimtab.api.tail.frameworks.openrlhf import OPENRLHF
from trimtab.api.tail.frameworks.prime_rl import PRIME_RL
from trimtab.api.tail.frameworks.slime import SLIME
from trimtab.api.tail.frameworks.trl import TRL
from trimtab.api.tail.frameworks.verl import VERL
from trimtab.api.tail.source import TailError

__all__ = ["FRAMEWORKS", "GENERIC", "Censored", "Framework", "Meaning", "detected", "framework_of"]

FRAMEWORKS: dict[str, Framework] = {
    each.name: each for each in (TRL, VERL, PRIME_RL, SLIME, NEMO_RL, OPENRLHF, GENERIC)
}
"""By name."""


def framework_of(name: str) -> Framework:
    """The framework of a name. Raises `TailError` where there is none."""
    found = FRAMEWORKS.get(name.replace("-", "_").lower())
    if found is None:
        raise TailError(f"--framework: {name!r} is none of {', '.join(FRAMEWORKS)}")
    return found


def detected(keys: Collection[str]) -> Framework | None:
    """The framework most of whose marks are among the keys; None where not one is."""
    found = {name: sum(each.bare(key) in each.marks for key in keys) for name, each in FRAMEWORKS.items()}
    best = max(found, key=lambda name: found[name])
    return FRAMEWORKS[best] if found[best] else None
