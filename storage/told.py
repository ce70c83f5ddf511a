"""What an endpoint knows of one job."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from trimtab.storage.alert import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The alerts that an endpoint was told of, by fingerprint."""

    firing: dict[str, Severity] = field(default_factory=dict)
    """That they fire, and how bad they were."""
    muted: frozenset[str] = frozenset()
    """That they fire, and that is not repeated: they were silenced since, or the endpoint wants no more of their kind.
    That they are resolved is still owed."""
    acknowledged: frozenset[str] = frozenset()
    """That somebody looks after them."""
    noticed: frozenset[str] = frozenset()
    """Notices."""

    def encoded(self) -> str:
        """As JSON."""
        sets = {name: sorted(getattr(self, name)) for name in ("muted", "acknowledged", "noticed")}
        return json.dumps({"firing": self.firing, **sets})

    @classmethod
    def decoded(cls, text: str) -> Told:
        """From JSON."""
        data = json.loads(text)
        return cls(
            firing={key: Severity(value) for key, value in data["firing"].items()},
            muted=frozenset(data["muted"]),
            acknowledged=frozenset(data["acknowledged"]),
            noticed=frozenset(data["noticed"]),
        )
