"""Records check themselves."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trimtab.hooks.controls import Capabilities, ControlError
from trimtab.hooks.records import (
    MAX_JOB_LENGTH,
    Command,
    NonFinite,
    RecordError,
    SignTotals,
    StepSummary,
    check_job,
    check_scalar,
    check_staleness,
)


@pytest.mark.parametrize("job", ["a", "Run_1.2-b", "9", "x" * MAX_JOB_LENGTH])
def test_names_of_jobs(job: str) -> None:
    check_job(job)


@pytest.mark.parametrize("job", ["", ".", ".hidden", "a/b", "a b", "ä", "a\n", "x" * (MAX_JOB_LENGTH + 1)])
def test_what_cannot_name_a_job(job: str) -> None:
    with pytest.raises(RecordError, match=r"^job: .* must be 1 to 128 letters"):
        check_job(job)
    with pytest.raises(RecordError, match=r"^job: "):
        StepSummary(job=job, attempt=0, step=0)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"attempt": -1}, "attempt: -1 is negative"),
        ({"step": -2}, "step: -2 is negative"),
        ({"rank": -1}, "rank: -1 is negative"),
        ({"generation": -1}, "generation: -1 is negative"),
        ({"dropped_total": -1}, "dropped_total: -1 is negative"),
        ({"attempt": 10**400}, "attempt: 10"),
        ({"step": 2**53}, "step: 9007199254740992 is not below 2^53"),
        ({"schema_version": 2}, "schema_version: 2 is not 1; upgrade the older side"),
        ({"staleness": -0.5}, "staleness: -0.5 is negative or not a number"),
        ({"staleness": math.nan}, "staleness: nan is negative or not a number"),
        ({"scalars": {"garbage_fraction": 1.5}}, "scalars.garbage_fraction: 1.5 is not a fraction in [0, 1]; divide"),
    ],
)
def test_a_summary_that_contradicts_itself_names_the_field(field: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError) as refused:
        StepSummary(**{"job": "run", "attempt": 0, "step": 0} | field)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.5, math.nan, math.inf, -math.inf])
def test_fractions_may_be_at_their_ends_and_not_finite(value: float) -> None:
    check_scalar("garbage_fraction", value)


def test_only_a_name_that_says_so_is_a_fraction() -> None:
    check_scalar("fraction_of_garbage", 40.0)
    check_staleness(0.0)
    check_staleness(math.inf)


def test_live_counts_what_is_not_finite_under_the_mask() -> None:
    assert NonFinite(nan=1, posinf=20, neginf=300, masked=4000, invalid=50000).live == 321


def test_tokens_of_a_summary_and_merged_totals_are_sums() -> None:
    one = SignTotals(tokens=1, advantage_abs=0.5, entropy_tokens=1, entropy=0.25, entropy_sq=0.0625)
    two = one.merged(one)
    assert two == SignTotals(tokens=2, advantage_abs=1.0, entropy_tokens=2, entropy=0.5, entropy_sq=0.125)
    assert StepSummary(job="run", attempt=0, step=0, negative=one, zero=two, positive=two).tokens == 5


@pytest.mark.parametrize("count", [-1, 2**53, 10**400])
@pytest.mark.parametrize(
    ("kind", "name"),
    [(SignTotals, name) for name in ("tokens", "entropy_tokens")]
    + [(NonFinite, name) for name in ("nan", "posinf", "neginf", "masked", "invalid")],
)
def test_what_cannot_be_a_count_is_refused(kind: Any, name: str, count: int) -> None:
    with pytest.raises(RecordError, match=f"^{name}: {count} is n"):
        kind(**{name: count})
    assert getattr(kind(**{name: 2**53 - 1}), name) == 2**53 - 1


@pytest.mark.parametrize("overrides", [{"warmth": 1.0}, {"clip_high": math.nan}, {"centering": 1.0}])
def test_overrides_are_controls_that_exist(overrides: dict[str, Any]) -> None:
    with pytest.raises(ControlError, match=f"^{next(iter(overrides))}: "):
        StepSummary(job="run", attempt=0, step=0, overrides=overrides)


def test_a_command_has_a_generation_and_a_job() -> None:
    def command(job: str, generation: int) -> Command:
        return Command(job=job, attempt=0, generation=generation, overrides={}, reason="", issuer="agent")

    assert command("run", 1).generation == 1
    with pytest.raises(RecordError, match="generation: 0 is below 1"):
        command("run", 0)
    with pytest.raises(RecordError, match="job: ''"):
        command("", 1)


@pytest.mark.parametrize("name", ["rank", "ranks", "failed_ranks"])
def test_ranks_fit_into_32_bits(name: str) -> None:
    assert getattr(StepSummary(job="run", attempt=1, step=0, **{name: 2**31 - 1}), name) == 2**31 - 1
    with pytest.raises(RecordError, match=f"^{name}: 2147483648 is above 2147483647"):
        StepSummary(job="run", attempt=1, step=0, **{name: 2**31})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scalars": dict.fromkeys(map(str, range(513)), 0.0)}, "scalars: 513 entries are more than 512"),
        ({"scalars": {"x" * 129: 0.0}}, "scalars: the name x+... is longer than 128"),
        ({"nonfinite": dict.fromkeys(map(str, range(513)), NonFinite(nan=1))}, "nonfinite: 513 entries"),
        ({"refusals": ("x",) * 65}, "refusals: 65 entries are more than 64"),
    ],
)
def test_a_summary_has_only_so_much(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=f"^{message}"):
        StepSummary(job="run", attempt=1, step=0, **fields)


def test_a_trainer_has_only_so_many_checkpoints() -> None:
    with pytest.raises(ValueError, match=r"^checkpoints: 4097 entries are more than 4096"):
        Capabilities(controls={}, checkpoints=("1:1",) * 4097)
