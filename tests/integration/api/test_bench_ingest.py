"""The load that `trimtab bench ingest` and `trimtab bench jobs` put on a real server, in small."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from trimtab.api.bench.bodies import Summaries, drawn_steps
from trimtab.api.bench.ingest import LostError, bench_ingest, check_ledger, ingest_cases
from trimtab.api.bench.jobs import bench_jobs, slope
from trimtab.api.bench.load import Load, LoadError, drive
from trimtab.api.bench.peers import BulkLog, LogBatch, _finite
from trimtab.api.bench.servers import agent
from trimtab.api.reported import summary_in
from trimtab.hooks.records import StepSummary


@pytest.fixture(scope="module")
def steps() -> list[StepSummary]:
    return drawn_steps(3)


def test_a_job_reports_drawn_steps_as_its_own(steps: list[StepSummary]) -> None:
    calls = Summaries.of("run", steps).calls(7)
    sent = [summary_in(next(calls).body) for _ in range(5)]
    assert sent == [replace(steps[step % 3], job="run-0007", step=step) for step in range(5)]


@pytest.mark.parametrize(("together", "encoding"), [(1, "gzip"), (4, "zstd")])
def test_what_is_acknowledged_is_in_the_ledger(
    steps: list[StepSummary], tmp_path: Path, together: int, encoding: str
) -> None:
    db, target = str(tmp_path / "agent.db"), Summaries.of("run", steps, together=together, encoding=encoding)
    with agent(db, tmp_path) as server:
        driven = drive(target, Load(urls=[server.url], jobs=2, seconds=0.5))
        with pytest.raises(LoadError, match="duplicate"):
            drive(target, Load(urls=[server.url], jobs=1, seconds=0.5))
    assert all(taken and taken % together == 0 for taken in driven.by_job)
    check_ledger(db, target, driven)
    fewer = replace(driven, by_job=(driven.by_job[0] - 1, driven.by_job[1]))
    with pytest.raises(LostError, match=f"run-0000: {fewer.by_job[0]} summaries were acknowledged, and the ledger"):
        check_ledger(db, target, fewer)


def test_a_server_that_refuses_ends_the_load(steps: list[StepSummary], tmp_path: Path) -> None:
    with agent(str(tmp_path / "agent.db"), tmp_path) as server, pytest.raises(LoadError, match=r"status 422: .*job"):
        drive(Summaries.of("no job's name", steps), Load(urls=[server.url], jobs=1, seconds=5))


def test_loads_are_named_and_measured_one_after_another(steps: list[StepSummary]) -> None:
    cases = list(ingest_cases(0.3, 2, steps, postgres="postgresql+psycopg:///x", peers=Path("peers")))
    assert [(case.server, case.requests) for case in cases] == [
        *(
            ("trimtab, SQLite, 1 process", requests)
            for each in ("1 summary", "16 summaries")
            for requests in (each, f"{each}, gzip", f"{each}, zstd")
        ),
        ("trimtab, PostgreSQL, 2 processes", "1 summary"),
        ("trimtab, PostgreSQL, 2 processes", "16 summaries"),
        ("MLflow, SQLite, 1 process", "the scalars of 1 step"),
        ("trackio, SQLite, 1 process", "the scalars of 1 step"),
    ]
    ended: list[None] = []
    first, second = bench_ingest(cases[0:6:5], on_case=lambda: ended.append(None))
    assert ended == [None, None]
    assert (first.requests, second.requests) == ("1 summary", "16 summaries, zstd")
    assert (first.ratio, second.ratio) == (1, first.summaries_per_second / second.summaries_per_second)
    assert first.p50_ms <= first.p99_ms


def test_jobs_at_their_pace_leave_a_whole_ledger(steps: list[StepSummary]) -> None:
    soak = bench_jobs(3, 1.5 / 60, 4, steps)
    assert (soak.jobs, soak.summaries) == (3, 18)
    assert soak.memory_mb
    assert soak.overview_p50_ms <= soak.overview_p99_ms


def test_the_growth_is_told_from_what_most_points_say() -> None:
    grows = [(float(t), 100 + 0.5 * t) for t in range(20)]
    assert slope(grows) == pytest.approx(0.5)
    assert slope([*grows[:5], (5.0, 900.0), *grows[6:]]) == pytest.approx(0.5)
    assert slope([(0.0, 1.0)]) == slope([]) == 0


def test_other_loggers_are_told_the_same_scalars(steps: list[StepSummary]) -> None:
    scalars = _finite(steps)
    assert {"reward_mean", "loss", "mismatch_std", "update_q05_negative"} <= scalars[0].keys()
    batch = LogBatch(runs=("a", "b"), scalars=scalars).calls(1)
    next(batch)
    told = json.loads(next(batch).body)
    assert told["run_id"] == "b"
    assert {one["key"]: one["value"] for one in told["metrics"]} == scalars[1]
    assert {(one["step"], one["timestamp"]) for one in told["metrics"]} == {(1, 1)}
    (entry,) = json.loads(next(BulkLog(scalars=scalars).calls(1)).body)["logs"]
    assert (entry["run"], entry["step"], entry["metrics"]) == ("bench-1", 0, scalars[0])
