"""What cannot be stored is refused by the name of its field, and everything else passes."""

import math
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from trimtab.agent.state import Mode, OperatorAction, OperatorVerb
from trimtab.api.portable import MAX_INTEGER, check_portable
from trimtab.hooks.controls import Capabilities, Controls, Liveness
from trimtab.hooks.records import Bucket, NonFinite, RecordError, SequenceTotals, SignTotals, StepSummary
from trimtab.hooks.sketch import SignSketch, Sketch

HALF = "\ud800"
SUMMARY = StepSummary(
    job="j",
    attempt=1,
    step=2,
    sketches={
        "update": Sketch(negative=SignSketch(bins=(600, 609), counts=(3, 61), sums=(-0.2, 0.1, 63.8, 63.6, 0.1)))
    },
    scalars={"loss": math.nan, "grad_norm": math.inf, "whole": 3},
    nonfinite={"entropy": NonFinite(nan=1)},
    by_position=(Bucket(first=0, last=0),),
    sequences=SequenceTotals(sequences=2, observed=2, ratio=2.0, ratio_sq=2.0),
    policy_version=MAX_INTEGER,
    overrides={"centering": True, "max_staleness": MAX_INTEGER},
    capabilities=Capabilities(controls={"centering": Liveness.LIVE}, checkpoints=("1:40",)),
    refusals=("clip_low: nö 🙂",),
)
ACTION = OperatorAction(
    job="j", verb=OperatorVerb.PATCH_CONTROLS, issuer="me", reason="why", overrides={"clip_low": None}, mode=Mode.AUTO
)


def test_what_can_be_stored_passes() -> None:
    check_portable(SUMMARY)
    check_portable(ACTION)
    check_portable(replace(SUMMARY, policy_version=-MAX_INTEGER))
    check_portable(replace(SUMMARY, refusals=("\\u0000 spelled out",)))


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (replace(SUMMARY, policy_version=MAX_INTEGER + 1), "policy_version: is not below 2^53 in size"),
        (replace(SUMMARY, policy_version=-MAX_INTEGER - 1), "policy_version: is not below 2^53 in size"),
        (replace(SUMMARY, scalars={"loss": 10**400}), "scalars.loss: is not below 2^53 in size"),
        (replace(SUMMARY, overrides={"max_staleness": 2**53}), "overrides.max_staleness: is not below 2^53 in size"),
        (replace(SUMMARY, by_position=(Bucket(first=0, last=2**60),)), "by_position.0.last: is not below 2^53"),
        (replace(SUMMARY, scalars={HALF: 1.0}), "scalars: \\ud800 has half of a surrogate pair"),
        (replace(SUMMARY, refusals=("fine", f"a{HALF}")), "refusals.1: a\\ud800 has half of a surrogate pair"),
        (replace(SUMMARY, applied=Controls(sampler_format=HALF)), "applied.sampler_format: \\ud800 has half"),
        (replace(ACTION, reason=HALF), "reason: \\ud800 has half of a surrogate pair"),
        (replace(SUMMARY, refusals=("fine", "a\0")), "refusals.1: 'a\\x00' has a NUL character"),
        (replace(SUMMARY, scalars={"\0": 1.0}), "scalars: '\\x00' has a NUL character"),
        (replace(ACTION, reason="a\0"), "reason: 'a\\x00' has a NUL character"),
        (replace(ACTION, proposal=2**53), "proposal: is not below 2^53 in size"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(record: Any, told: str) -> None:
    with pytest.raises(RecordError) as caught:
        check_portable(record)
    assert str(caught.value).startswith(told)


def test_what_is_no_plain_data_but_can_be_stored_passes() -> None:
    check_portable({1: "a key that is no text", "nested": ({"x": 1 + 2j},)})


@pytest.mark.parametrize(
    "kind", [StepSummary, SignTotals, SequenceTotals, Bucket, Controls, Capabilities, OperatorAction]
)
def test_no_field_of_a_record_is_hidden_from_the_check(kind: Any) -> None:
    assert is_dataclass(kind)
    assert [field.name for field in fields(kind) if field.name.startswith("_")] == []  # the encoder passes those over
