"""Records survive JSON: non-finite numbers, unknown keys, key order."""

import json
import math
from dataclasses import make_dataclass, replace
from typing import Any

import pytest
from agent_runs import Plant
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trimtab.agent.advance import advance
from trimtab.agent.config import AgentConfig
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Event, EventKind, Mode, OperatorAction, OperatorVerb
from trimtab.hooks.controls import Controls
from trimtab.hooks.records import StepSummary
from trimtab.storage.codec import ACTION, CONFIG, EVENT, RUN_STATE, SUMMARY, Codec, digest, same


@given(st.dictionaries(st.sampled_from(["loss", "grad_norm", "reward_mean"]), st.floats()))
def test_every_float_of_a_summary_survives(scalars: dict[str, float]) -> None:
    before = StepSummary(job="j", attempt=1, step=2, scalars=scalars)
    after = SUMMARY.decode(SUMMARY.encode(before))
    assert list(map(repr, after.scalars.items())) == list(map(repr, before.scalars.items()))
    assert replace(after, scalars={}) == replace(before, scalars={})


def test_non_finite_numbers_are_strings_at_any_depth() -> None:
    detail = {"evidence": {"score": math.nan}, "list": [math.inf, [-math.inf]]}
    event = Event(kind=EventKind.REFUSED, attempt=1, step=1, detail=detail)
    assert json.loads(EVENT.encode(event))["detail"] == {
        "evidence": {"score": "NaN"},
        "list": ["Infinity", ["-Infinity"]],
    }


def test_a_bare_nan_is_read_and_never_written() -> None:
    summary = SUMMARY.decode('{"job": "j", "attempt": 1, "step": 0, "scalars": {"loss": NaN}}')
    assert math.isnan(summary.scalars["loss"])
    assert '"loss":"NaN"' in SUMMARY.encode(summary)


def test_what_another_version_wrote_into_the_ledger_is_read_without_the_rest() -> None:
    text = '{"job": "j", "attempt": 1, "step": 0, "mood": "fine", "applied": {"clip_low": 0.1, "gone": 1}}'
    assert SUMMARY.decode(text) == StepSummary(job="j", attempt=1, step=0, applied=Controls(clip_low=0.1))


@pytest.mark.parametrize(("codec", "text"), [(RUN_STATE, '{"job": "j", "mode": "auto", "x": 1}'), (CONFIG, '{"x": 1}')])
def test_what_this_version_alone_writes_has_no_other_keys(codec: Codec[Any], text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        codec.decode(text)
    assert [error["loc"] for error in caught.value.errors()] == [(0, "x")]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"job": "j", "attempt": 1, "step": "x"}', (0, "step")),
        ('{"job": "j", "attempt": 1, "step": 0, "applied": {"clip_low": "x"}}', (0, "applied", "clip_low")),
        ('{"job": "j", "attempt": 1}', (0, "step")),
    ],
)
def test_a_malformed_summary_names_its_field(text: str, field: tuple[object, ...]) -> None:
    with pytest.raises(ValidationError) as caught:
        SUMMARY.decode(text)
    assert [error["loc"] for error in caught.value.errors()] == [field]


def test_the_schema_follows_the_fields_and_not_the_prose() -> None:
    def shape(name: str, kind: Any, prose: str) -> str:
        made = make_dataclass("Made", [("a", int), (name, kind)], frozen=True)
        made.__doc__ = prose
        return Codec(made, unknown="forbid").schema

    before = shape("b", float, "One.")
    assert shape("b", float, "Another.") == before
    assert shape("b", float | None, "One.") != before
    assert shape("c", float, "One.") != before
    assert shape("description", float, "One.") not in (before, shape("title", float, "One."))
    assert RUN_STATE.schema != CONFIG.schema
    assert len(RUN_STATE.schema) == 64


def test_a_state_in_the_middle_of_an_incident_survives() -> None:
    plant, config = Plant(seed=3, noisy_from=5), AgentConfig(mode=Mode.AUTO)
    state = RunState.initial("run", config.mode)
    for _ in range(30):
        outcome = advance(config, state, plant.advance())
        plant.obey(outcome.command)
        state = RUN_STATE.decode(RUN_STATE.encode(outcome.state))
        assert state == outcome.state
    assert state.generation > 0
    assert CONFIG.decode(CONFIG.encode(config)) == config


def test_an_action_survives_with_the_types_of_its_values() -> None:
    overrides = {"centering": True, "clip_low": 1.0, "clip_mode": "calibrated", "clip_high": None}
    action = OperatorAction(job="j", verb=OperatorVerb.PATCH_CONTROLS, issuer="me", reason="why", overrides=overrides)
    after = ACTION.decode(ACTION.encode(action))
    assert after == action
    assert [type(value) for value in after.overrides.values()] == [bool, float, str, type(None)]


PAYLOAD = '{"a":1,"b":[1,2.5,"NaN"]}'


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (PAYLOAD, True),
        ('{"b": [1, 2.5, "NaN"], "a": 1}', True),
        ('{"a":1,"b":[2.5,1,"NaN"]}', False),
        ('{"a":1.0,"b":[1,2.5,"NaN"]}', False),
        ('{"a":true,"b":[1,2.5,"NaN"]}', False),
        ('{"a":1,"b":[1,2.5,"NaN"],"c":null}', False),
    ],
)
def test_payloads_are_the_same_whatever_the_order_of_their_keys(other: str, is_same: bool) -> None:
    assert same(PAYLOAD, other) is is_same
    assert same(other, PAYLOAD) is is_same
    assert (digest(PAYLOAD) == digest(other)) is (other == PAYLOAD)


def test_the_digest_of_sorted_keys_is_what_the_first_ledgers_hold() -> None:
    assert digest('{"a":1,"b":[1,2]}') == "8baa73198470c7bb4c3ce142a8fd651affc0310d878bb9bd159e37a573fb4874"
