"""D26, D28 and D50 where only a log is there: what it shows is told as what it is, and what it hides is not claimed."""

import math
from collections.abc import Callable

import pytest
from case_runs import fired, told

from trimtab.agent.state import State
from trimtab.api.log_view import log_view
from trimtab.api.tail.assembly import Assembly, Axis
from trimtab.api.tail.frameworks import FRAMEWORKS
from trimtab.api.tail.source import Row
from trimtab.api.tail.summaries import mapped, summary_of
from trimtab.hooks.records import StepSummary


def read(framework: str, *rows: dict[str, float]) -> list[StepSummary]:
    """The summaries of what a job logs, a row a step."""
    logged = [Row(step=step, values=values) for step, values in enumerate(rows)]
    state, steps = Assembly(attempt=1).taking(logged, Axis(), 0.0)
    steps += state.ended(whole=True)[1]
    table = FRAMEWORKS[framework]
    parts = {"job": "run", "source": "jsonl", "framework": framework, "vanished": (), "now": 0.0}
    return [summary_of(step, mapped(step.values, table), **parts) for step in steps]  # type: ignore[arg-type]


def d26() -> None:
    """huggingface/trl#5231: raw [0.2, 9.0], cap 3, logged max 3.0: shown as a bound."""
    state, _ = told(read("trl", {"loss": 0.1, "sampling/importance_sampling_ratio/max": 3.0}))
    view = log_view(state)
    assert view is not None
    assert view.censored == {"sampling/importance_sampling_ratio/max": ">=3 (censored)"}


def d28() -> None:
    """RLinf/RLinf#1471: a clip fraction of 31.0 is not observed, and the step is judged without it."""
    (summary,) = read("verl", {"actor/pg_clipfrac": 31.0, "actor/grad_norm": 0.5})
    assert summary.scalars == {"grad_norm": 0.5}


def d50() -> None:
    """huggingface/trl: [1.5, NaN] is logged as 1.5. It cannot be seen, and nobody is told that all was finite."""
    state, events = told(read("trl", {"loss": 1.5}))
    assert fired(events) == []
    assert state.verdicts["nonfinite"].message.endswith("what the logger left out or averaged away is not seen")
    assert any("leaves NaN out before it averages" in line for line in FRAMEWORKS["trl"].blind)
    seen, alarms = told(read("trl", {"loss": 1.5}, {"loss": math.nan}))
    assert fired(alarms) == [(1, "nonfinite")]
    assert seen.verdicts["nonfinite"].state is State.CRITICAL


CASES: dict[str, Callable[[], None]] = {case.__name__.upper(): case for case in (d26, d28, d50)}


@pytest.mark.parametrize("case", CASES)
def test_public_case(case: str) -> None:
    CASES[case]()
