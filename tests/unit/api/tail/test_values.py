"""What is a step, and what is a time."""

import math
from typing import Any

import pytest

from trimtab.api.tail.assembly import LoggedStep
from trimtab.api.tail.frameworks import GENERIC
from trimtab.api.tail.summaries import mapped, summary_of
from trimtab.api.tail.values import step_of, time_of


@pytest.mark.parametrize(
    ("value", "step"),
    [
        (0, 0), (7.0, 7), ("12", 12), (2**53 - 1, 2**53 - 1),
        (-1, None), (0.5, None), (2**53, None), (10**400, None), (True, None), (None, None), (math.nan, None),
        (math.inf, None), ("\N{SUPERSCRIPT TWO}", None), ("\u0665", None), ("--5", None), ("-1", None), ("", None),
        ("9" * 5000, None), ("nan", None), ([], None),
    ],
)  # fmt: skip
def test_a_step_is_a_whole_number_that_a_float_holds(value: Any, step: int | None) -> None:
    assert step_of(value) == step


def test_a_time_is_finite() -> None:
    values = [1.5, 3, math.nan, math.inf, -math.inf, "inf", 10**400, None, "x"]
    assert [time_of(value) for value in values] == [1.5, 3.0, *[None] * 7]


@pytest.mark.parametrize("time", [math.nan, math.inf, -math.inf])
def test_there_is_no_lag_behind_a_time_that_is_none(time: float) -> None:
    step = LoggedStep(attempt=1, step=2, values={"loss": 0.5}, time=time)
    found = mapped(step.values, GENERIC)
    made = summary_of(step, found, job="j", source="jsonl", framework="generic", vanished=(), now=10.0)
    assert made.log is not None
    assert made.log.lag_seconds is None
