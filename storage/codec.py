"""Records to JSON text and back, without loss: NaN and the infinities are strings.

One codec a type. Unknown keys are errors in what this version alone writes and reads, and ignored in what the ledger
keeps for later versions: the records there lose a field when the program does. The record stands inside a list while it
is coded, because a plain dataclass takes its settings from what holds it.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

from pydantic import ConfigDict, TypeAdapter

from trimtab.agent.config import AgentConfig
from trimtab.agent.essentials import Essentials
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Event, OperatorAction
from trimtab.hooks.records import StepSummary
from trimtab.storage.rollups import Stretch

T = TypeVar("T")


class Codec(Generic[T]):
    """JSON text of the values of one type; `decode(encode(value)) == value` (NaN aside, which equals nothing)."""

    def __init__(self, kind: type[T], *, unknown: Literal["forbid", "ignore"]) -> None:
        config = ConfigDict(extra=unknown, ser_json_inf_nan="strings")
        self._adapter: TypeAdapter[list[T]] = TypeAdapter(list[kind], config=config)  # type: ignore[valid-type]

    def encode(self, value: T) -> str:
        """The value as one line of JSON."""
        return self._adapter.dump_json([value])[1:-1].decode()

    def decode(self, text: str) -> T:
        """The value that `text` stands for.

        Raises:
            pydantic.ValidationError: the text is no such value; every error names its field.
        """
        return self._adapter.validate_json(f"[{text}]")[0]

    @cached_property
    def schema(self) -> str:
        """What the type is made of, as 64 hexadecimal digits: another field, type or default gives others."""
        return digest(_sorted(json.dumps(_shape(self._adapter.json_schema(mode="serialization")))))


def _shape(schema: Any) -> Any:
    """A JSON schema without its prose."""
    if isinstance(schema, dict):
        prose = ("title", "description")
        return {name: _shape(part) for name, part in schema.items() if name not in prose or not isinstance(part, str)}
    return [_shape(part) for part in schema] if isinstance(schema, list) else schema


SUMMARY = Codec(StepSummary, unknown="ignore")
ACTION = Codec(OperatorAction, unknown="ignore")
CONFIG = Codec(AgentConfig, unknown="forbid")
RUN_STATE = Codec(RunState, unknown="forbid")
EVENT = Codec(Event, unknown="forbid")
ESSENTIALS = Codec(Essentials, unknown="ignore")
STRETCH = Codec(Stretch, unknown="ignore")


def digest(text: str) -> str:
    """SHA-256 of a payload as it stands; hexadecimal.

    Payloads of one digest are the same. Of two digests they may be all the same, in another order of keys, or in what
    an older version digested: ask `same`.
    """
    return hashlib.sha256(text.encode()).hexdigest()


def same(one: str, other: str) -> bool:
    """Whether two JSON texts say the same, whatever the order of their keys and the space between them."""
    return one == other or _sorted(one) == _sorted(other)


def _sorted(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
