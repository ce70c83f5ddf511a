"""What a record says of the log that it was read from."""

import math

import pytest

from trimtab.api.reported import summary_in
from trimtab.hooks.controls import Capabilities, Liveness
from trimtab.hooks.log_facts import MAX_KEYS, LogFacts, LogFactsError
from trimtab.hooks.records import RecordError, StepSummary
from trimtab.hooks.wire import decode, encode
from trimtab.storage.codec import SUMMARY

FACTS = LogFacts(
    source="wandb",
    framework="trl",
    censored={"ratio/max": "above", "ess": "below"},
    vanished=("loss",),
    lag_seconds=2.5,
)


def test_it_survives_every_wire() -> None:
    summary = StepSummary(job="run", attempt=1, step=0, scalars={"loss": math.inf}, log=FACTS)
    assert decode(StepSummary, encode(summary)) == summary
    assert summary_in(encode(summary)) == summary
    assert SUMMARY.decode(SUMMARY.encode(summary)) == summary
    assert decode(StepSummary, encode(StepSummary(job="run", attempt=1, step=0))).log is None


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"source": ""}, r"^log.source: '' must have 1 to 64"),
        ({"framework": "x" * 65}, "^log.framework: 'x"),
        ({"lag_seconds": -1.0}, "^log.lag_seconds: -1.0 is negative or no number; give None"),
        ({"lag_seconds": math.nan}, "^log.lag_seconds: nan is negative"),
        ({"vanished": tuple(map(str, range(MAX_KEYS + 1)))}, "^log.vanished: 513 entries are more than 512"),
        ({"censored": {"x" * 129: "above"}}, r"^log.censored: the name x+\.\.\. is longer than 128"),
    ],
)
def test_what_cannot_be_is_named(fields: dict[str, object], told: str) -> None:
    given: dict[str, object] = {"source": "wandb", "framework": "trl"}
    with pytest.raises(LogFactsError, match=told):
        LogFacts(**{**given, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "more",
    [
        {"capabilities": Capabilities(controls={"clip_high": Liveness.LIVE})},
        {"overrides": {"clip_high": 0.3}},
        {"generation": 3},
    ],
)
def test_a_job_that_is_read_has_no_controls(more: dict[str, object]) -> None:
    with pytest.raises(RecordError, match=r"^log: a job that is read from its log can only be observed"):
        StepSummary(job="run", attempt=1, step=0, log=FACTS, **more)  # type: ignore[arg-type]
