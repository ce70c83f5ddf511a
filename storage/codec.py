"""Records to JSON text and back, without loss: NaN and the infinities are strings, unknown keys are errors.

One codec a type. The record stands inside a list while it is coded, because a plain dataclass takes its settings from
what holds it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter

from trimtab.agent.config import AgentConfig
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Event, OperatorAction
from trimtab.hooks.records import StepSummary

T = TypeVar("T")

_EXACT = ConfigDict(extra="forbid", ser_json_inf_nan="strings")


class Codec(Generic[T]):
    """JSON text of the values of one type; `decode(encode(value)) == value` (NaN aside, which equals nothing)."""

    def __init__(self, kind: type[T]) -> None:
        self._adapter: TypeAdapter[list[T]] = TypeAdapter(list[kind], config=_EXACT)  # type: ignore[valid-type]

    def encode(self, value: T) -> str:
        """The value as one line of JSON."""
        return self._adapter.dump_json([value])[1:-1].decode()

    def decode(self, text: str) -> T:
        """The value that `text` stands for.

        Raises:
            pydantic.ValidationError: the text is no such value; every error names its field.
        """
        return self._adapter.validate_json(f"[{text}]")[0]

    def from_data(self, data: Any) -> T:
        """The value that already parsed JSON stands for; raises as `decode`."""
        return self._adapter.validate_json(json.dumps([data]))[0]


SUMMARY = Codec(StepSummary)
ACTION = Codec(OperatorAction)
CONFIG = Codec(AgentConfig)
RUN_STATE = Codec(RunState)
EVENT = Codec(Event)


def digest(text: str) -> str:
    """SHA-256 of JSON text, whatever the order of its keys; hexadecimal."""
    canonical = json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
