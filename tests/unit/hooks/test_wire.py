"""What the wire takes from a side that is newer, older or broken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trimtab.hooks.controls import Controls
from trimtab.hooks.records import Command, NonFinite, StepSummary
from trimtab.hooks.wire import WireError, decode, encode

COMMAND: dict[str, Any] = {
    "job": "run",
    "attempt": 1,
    "generation": 2,
    "overrides": {"clip_low": 0.1},
    "reason": "",
    "issuer": "agent",
}


def test_a_newer_agent_is_understood() -> None:
    newer = COMMAND | {"lease": {"steps": 20}, "evidence": [1, 2]}
    assert decode(Command, json.dumps(newer)) == decode(Command, json.dumps(COMMAND))


def test_an_older_hook_is_understood() -> None:
    old = {"job": "run", "attempt": 1, "step": 3, "applied": {"clip_low": 0.1}, "nonfinite": {"entropy": {"nan": 2}}}
    assert decode(StepSummary, json.dumps(old)) == StepSummary(
        job="run", attempt=1, step=3, applied=Controls(clip_low=0.1), nonfinite={"entropy": NonFinite(nan=2)}
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[" * 100_000, "Command: nested more deeply than any record"),
        (b"{", "Command: not JSON"),
        (b"[]", r"Command: \[\] is not an object"),
        (json.dumps(COMMAND | {"generation": "many"}).encode(), "Command.generation: 'many' is not int"),
        (json.dumps(COMMAND | {"generation": True}).encode(), "Command.generation: True is not int"),
        (json.dumps({**COMMAND, "overrides": {"clip_low": 10**400}}).encode(), "Command.overrides.clip_low: 1000"),
        (json.dumps({k: v for k, v in COMMAND.items() if k != "job"}).encode(), "Command.job: is missing"),
    ],
)
def test_what_is_no_record_is_named(data: bytes, message: str) -> None:
    with pytest.raises(WireError, match=f"^{message}"):
        decode(Command, data)


def test_counts_of_unusable_values_cross_the_wire() -> None:
    summary = StepSummary(job="run", attempt=1, step=0, nonfinite={"old_logprobs": NonFinite(invalid=3)})
    assert decode(StepSummary, encode(summary)) == summary
    assert NonFinite(nan=1, posinf=2, neginf=3, masked=40, invalid=500).live == 6
