"""The hook's own codec and pydantic, which the service uses, read and write the same JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from trimtab.hooks.controls import CHOICES, NUMERIC_BOUNDS, Capabilities, Controls, Liveness
from trimtab.hooks.records import Bucket, Command, NonFinite, SequenceTotals, SignTotals, StepSummary
from trimtab.hooks.sketch import BINS, MAX_LOG_RATIO, SignSketch, Sketch
from trimtab.hooks.wire import decode, encode

numbers = st.floats(width=64)
finite = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 2**40)
ranks = st.integers(0, 2**31 - 1)
names = st.from_regex(r"[a-z_]{1,12}", fullmatch=True).filter(lambda name: not name.endswith("_fraction"))


@st.composite
def sign_sketches(draw: st.DrawFn) -> SignSketch:
    bins = tuple(sorted(draw(st.sets(st.integers(0, BINS - 1), max_size=8))))
    counts = tuple(draw(st.integers(1, 2**40)) for _ in bins)
    # Sums of as many tokens, all of one log-ratio.
    x, n = draw(st.floats(-MAX_LOG_RATIO, MAX_LOG_RATIO)), sum(counts)
    terms = (x, x * x, math.exp(x), math.exp(2 * x), math.expm1(x) - x)
    return SignSketch(bins=bins, counts=counts, sums=tuple(n * term for term in terms))


sketches = st.builds(Sketch, negative=sign_sketches(), zero=sign_sketches(), positive=sign_sketches())
totals = st.builds(
    SignTotals, tokens=counts, advantage_abs=finite, entropy_tokens=counts, entropy=finite, entropy_sq=finite
)
buckets = st.builds(Bucket, first=counts, last=st.none(), tokens=counts)
sequences = st.builds(SequenceTotals, sequences=st.just(2**41), missing=counts, observed=counts)
controls = st.builds(
    Controls,
    **{name: st.sampled_from(choices) for name, choices in CHOICES.items()},
    **{name: st.floats(bounds.low, bounds.high, allow_nan=False) for name, bounds in NUMERIC_BOUNDS.items()},
    centering=st.booleans(),
    sampler_format=names,
)
capabilities = st.builds(
    Capabilities,
    controls=st.dictionaries(st.sampled_from(["clip_low", "centering"]), st.sampled_from(Liveness)),
    sampler_head=st.integers(0, 64),
    shadow=st.booleans(),
    sampler_formats=st.lists(names, max_size=3).map(tuple),
)
summaries = st.builds(
    StepSummary,
    job=st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True),
    attempt=counts,
    step=counts,
    rank=ranks,
    ranks=ranks,
    failed_ranks=ranks,
    sketches=st.dictionaries(st.sampled_from(["update", "mismatch", "shadow"]), sketches),
    negative=totals,
    positive=totals,
    scalars=st.dictionaries(names, numbers, max_size=4),
    nonfinite=st.dictionaries(names, st.builds(NonFinite, nan=counts, masked=counts), max_size=2),
    policy_version=st.none() | counts,
    staleness=st.none() | st.floats(0, 1e9),
    pass_index=counts,
    by_position=st.lists(buckets, max_size=2).map(tuple),
    by_length=st.lists(buckets, max_size=2).map(tuple),
    sequences=st.none() | sequences,
    applied=controls,
    generation=counts,
    capabilities=capabilities,
    refusals=st.lists(st.text(), max_size=2).map(tuple),
    dropped_total=counts,
)
commands = st.builds(
    Command,
    job=st.just("run"),
    attempt=counts,
    generation=st.integers(1, 2**40),
    overrides=st.dictionaries(names, st.booleans() | finite | names, max_size=4),
    reason=st.text(),
    issuer=st.text(),
)


def with_named_nonfinite(value: Any) -> Any:
    """What the service writes: pydantic's plain data, non-finite floats by name."""
    if isinstance(value, dict):
        return {key: with_named_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [with_named_nonfinite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


@given(summaries)
def test_pydantic_reads_what_the_hook_writes(summary: StepSummary) -> None:
    assert repr(TypeAdapter(StepSummary).validate_json(encode(summary))) == repr(summary)


@given(summaries)
def test_the_hook_reads_what_pydantic_writes(summary: StepSummary) -> None:
    written = json.dumps(with_named_nonfinite(TypeAdapter(StepSummary).dump_python(summary)))
    assert repr(decode(StepSummary, written)) == repr(summary)
    assert json.loads(encode(summary)) == json.loads(written)


@given(commands)
def test_commands_cross_both_ways(command: Command) -> None:
    adapter = TypeAdapter(Command)
    assert decode(Command, adapter.dump_json(command)) == command
    assert adapter.validate_json(encode(command)) == command


def test_what_a_newer_side_adds_is_ignored_and_what_it_leaves_out_has_its_default() -> None:
    summary = decode(StepSummary, '{"job": "run", "attempt": 1, "step": 2, "mood": "fine"}')
    assert summary == StepSummary(job="run", attempt=1, step=2)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "StepSummary: not JSON"),
        ("[]", r"StepSummary: \[\] is not an object"),
        ('{"job": "run", "step": 1}', r"StepSummary\.attempt: is missing"),
        ('{"job": 5, "attempt": 1, "step": 1}', r"StepSummary\.job: 5 is not str"),
        ('{"job": "run", "attempt": true, "step": 1}', r"StepSummary\.attempt: True is not int"),
        ('{"job": "run", "attempt": 1.5, "step": 1}', r"StepSummary\.attempt: 1.5 is not int"),
        ('{"job": "run", "attempt": 1, "step": 1, "scalars": {"loss": "high"}}', r"scalars\.loss: 'high' is not float"),
        ('{"job": "run", "attempt": 1, "step": 1, "scalars": {"loss": null}}', r"scalars\.loss: None is not float"),
        (
            '{"job": "run", "attempt": 1, "step": 1, "applied": {"importance": "some"}}',
            r"applied\.importance: 'some' is not",
        ),
        (
            '{"job": "run", "attempt": 1, "step": 1, "capabilities": {"controls": {"clip_low": "soon"}}}',
            r"capabilities\.controls\.clip_low: 'soon' is not Liveness",
        ),
        ('{"job": "run", "attempt": -1, "step": 1}', "attempt: -1 is negative"),
        (
            '{"job": "run", "attempt": 1, "step": 1, "sketches": {"update": {"zero": {"bins": [1], "counts": []}}}}',
            "1 bins but 0 counts",
        ),
    ],
)
def test_what_is_wrong_is_named(data: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode(StepSummary, data)
