"""Summaries as they come in are what the ledger gives back."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_runs import Plant
from fastapi.exceptions import RequestValidationError
from hypothesis import given
from hypothesis import strategies as st

from trimtab.api.problem import MAX_PROBLEMS, problems_of
from trimtab.api.reported import MAX_BATCH, MAX_SUMMARY, summaries_in, summary_in
from trimtab.hooks.records import StepSummary
from trimtab.storage.codec import SUMMARY
from trimtab.storage.ledger_file import read

LEDGERS = sorted((Path(__file__).parents[2] / "data" / "ledgers").glob("*.jsonl.gz"))
NUMBERS = st.one_of(
    st.integers(-(2**60), 2**60),
    st.floats(),
    st.booleans(),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "1.5", "tis", "live", "", "x"]),
    st.none(),
)
CONTROLS = ["clip_low", "clip_high", "importance_cap", "lr_scale", "centering", "sampler_format", "restore"]


def of_plant(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SUMMARY.encode(Plant(seed=0).advance())) | changes
    return found


@pytest.mark.parametrize("path", LEDGERS, ids=lambda path: path.name.split(".")[0])
def test_every_recorded_summary_is_read_as_it_was_stored(path: Path) -> None:
    payloads = [entry.payload for entry in read(path).entries if entry.kind == "summary"][:20]
    for payload in payloads:
        assert SUMMARY.encode(summary_in(payload.encode())) == SUMMARY.encode(SUMMARY.decode(payload))
    assert [type(one) for one in summaries_in(f"[{','.join(payloads)}]".encode())] == [StepSummary] * len(payloads)


@given(
    st.dictionaries(st.sampled_from(CONTROLS), NUMBERS, max_size=3),
    st.dictionaries(st.sampled_from(CONTROLS), NUMBERS, max_size=3),
    st.dictionaries(st.text(max_size=5), NUMBERS, max_size=3),
    NUMBERS,
)
def test_whatever_is_taken_is_what_a_replay_reads(
    applied: dict[str, Any], overrides: dict[str, Any], scalars: dict[str, Any], step: Any
) -> None:
    body = json.dumps(of_plant(applied=applied, overrides=overrides, scalars=scalars, step=step)).encode()
    try:
        summary = summary_in(body)
    except RequestValidationError:
        return
    again = SUMMARY.decode(SUMMARY.encode(summary))
    assert type(summary) is StepSummary
    assert list(typed(summary)) == list(typed(again))


def typed(value: Any) -> Iterator[tuple[str, str]]:
    """Every leaf with its type, so that 1, 1.0 and True differ, and NaN equals itself."""
    for name in ("applied", "overrides", "scalars", "step"):
        yield name, repr(getattr(value, name))


def test_a_batch_loses_nothing_to_one_that_cannot_be_read() -> None:
    body = json.dumps([of_plant(step=0), of_plant(step="soon"), "no", of_plant(step=1, new_key=1)]).encode()
    first, second, third, fourth = summaries_in(body)
    assert isinstance(first, StepSummary)
    assert isinstance(fourth, StepSummary)
    assert (first.step, fourth.step) == (0, 1)
    assert isinstance(second, RequestValidationError)
    assert [problem.field for problem in problems_of(second)] == ["step"]
    assert isinstance(third, RequestValidationError)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{}", "should be a valid array"),
        (b"[", "not JSON"),
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 1000, "not JSON: recursion limit"),
        (json.dumps([0] * (MAX_BATCH + 1)).encode(), f"at most {MAX_BATCH} items"),
    ],
)
def test_what_is_no_batch_is_refused(body: bytes, told: str) -> None:
    with pytest.raises(RequestValidationError) as refused:
        summaries_in(body)
    (problem,) = problems_of(refused.value)
    assert told in problem.message


@pytest.mark.parametrize(
    ("part", "field", "message"),
    [
        ({"scalars": dict.fromkeys(map(str, range(513)), "x")}, "scalars", "513 entries are more than 512"),
        ({"nonfinite": {str(i): {} for i in range(513)}}, "nonfinite", "513 entries are more than 512"),
        ({"sketches": {str(i): {} for i in range(65)}}, "sketches", "65 entries are more than 64"),
        ({"refusals": ["x"] * 65}, "refusals", "65 entries are more than 64"),
        ({"refusals": [1, 1]}, "refusals.0", "should be a valid string"),
        ({"capabilities": {"controls": dict.fromkeys(map(str, range(99)))}}, "capabilities.controls", "99 entries"),
        ({"scalars": {"x" * 129: 1.0}}, "scalars", "is longer than 128 characters"),
        ({"rank": 2**31}, "rank", "2147483648 is above 2147483647"),
    ],
)
def test_what_is_too_much_is_refused_once_and_named(part: dict[str, Any], field: str, message: str) -> None:
    body = json.dumps(of_plant(**part)).encode()
    with pytest.raises(RequestValidationError) as refused:
        summary_in(body)
    (in_batch,) = summaries_in(b"[" + body + b"]")
    assert isinstance(in_batch, RequestValidationError)
    for error in (refused.value, in_batch):
        (problem,) = problems_of(error)
        assert problem.field == field
        assert message in problem.message


def test_as_much_as_there_may_be_is_taken() -> None:
    scalars = {f"{i:0128}": 1.0 for i in range(512)}
    assert summary_in(json.dumps(of_plant(scalars=scalars, rank=2**31 - 1)).encode()).scalars == scalars


def test_of_many_mistakes_the_first_are_told_and_how_many_more_there_are() -> None:
    with pytest.raises(RequestValidationError) as refused:
        summary_in(json.dumps(of_plant(scalars=dict.fromkeys(map(str, range(500)), "x"))).encode())
    problems = problems_of(refused.value)
    assert [one.field for one in problems] == [*(f"scalars.{i}" for i in range(MAX_PROBLEMS)), ""]
    assert problems[-1].message == "480 more are wrong; correct these first"


def test_a_summary_in_a_batch_is_no_larger_than_one_alone() -> None:
    body = json.dumps([of_plant(new_key="x" * MAX_SUMMARY), of_plant()]).encode()
    large, other = summaries_in(body)
    assert isinstance(large, RequestValidationError)
    assert f"larger than {MAX_SUMMARY} bytes" in problems_of(large)[0].message
    assert isinstance(other, StepSummary)
