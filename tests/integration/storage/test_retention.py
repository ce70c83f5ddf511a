"""What is let go, what stands in for it, and that nothing else can tell."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import isclose
from pathlib import Path

import httpx
import pytest
from agent_runs import step_summary
from long_runs import AUTO, Clock, give, long_run, opened
from sqlalchemy import delete, func, select, update

from trimtab.agent.state import Mode
from trimtab.api.refold import refolded
from trimtab.api.restore import config_of
from trimtab.api.retention import Keep, Pace, Retention
from trimtab.api.server import running
from trimtab.api.service import Service, Taken
from trimtab.hooks.records import StepSummary
from trimtab.storage.codec import RUN_STATE, STRETCH
from trimtab.storage.history import History
from trimtab.storage.ledger_file import lines, read
from trimtab.storage.rollups import Stretch
from trimtab.storage.tables import HistoryRow, LedgerRow, RunStateRow, SignalRollupRow

STEPS = 300
STORED = 290
"""Records, three decisions of a person among them."""
PACE = Pace(worth_rolling_up=20, rolled_up_at_once=50, let_go_at_once=20, least_kept=220)
NEWEST = Keep(summaries=1)
"""As little as can be; the pace keeps more."""
DAY = 86_400.0

Opener = Callable[..., Service]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | str]:
    """A database with the first `STORED` records, to be copied."""
    if request.param == "sqlite":
        path = tmp_path_factory.mktemp("recorded") / "agent.db"
        _record(path)
        yield path
        return
    with request.getfixturevalue("postgres").database() as url:
        _record(url)
        yield url


def _record(target: Path | str) -> None:
    service = opened(target)
    give(service, long_run(STEPS)[:STORED])
    service.close()


@pytest.fixture
def another(request: pytest.FixtureRequest, recorded: Path | str, tmp_path: Path) -> Iterator[Opener]:
    """Opens services on a copy of it, each with nothing in memory, as processes of their own have."""
    with ExitStack() as stack:
        if isinstance(recorded, Path):
            url = str(shutil.copy(recorded, tmp_path / "agent.db"))
        else:
            url = stack.enter_context(request.getfixturevalue("postgres").database(like=recorded))

        def open_one(clock: Callable[[], float] = time.time) -> Service:
            service = opened(url, clock)
            stack.callback(service.database.close)
            return service

        yield open_one


@pytest.fixture
def service(another: Opener) -> Service:
    return another()


def run(service: Service, keep: Keep = NEWEST) -> None:
    Retention(service, keep, pace=PACE).pass_over()


def rows_without_contents(service: Service) -> int:
    with service.database.read() as connection:
        gone = select(func.count()).where(func.length(LedgerRow.payload) == 0)
        return connection.execute(gone).scalar_one()


def forget_snapshots(service: Service) -> None:
    with service.database.write() as connection:
        connection.execute(delete(RunStateRow))


def base_seq(service: Service) -> int:
    [base] = [ledger.base for ledger in History(service.database).ledgers() if ledger.job == "run"]
    return base


def test_nothing_is_let_go_unless_somebody_asks(service: Service) -> None:
    run(service, Keep())
    assert (rows_without_contents(service), base_seq(service)) == (0, 0)


def test_a_fold_from_the_base_is_the_undisturbed_state(service: Service, another: Opener) -> None:
    run(service)
    assert base_seq(service) == 60
    assert rows_without_contents(service) == 60
    give(service, long_run(STEPS)[STORED:])
    undisturbed = service.state("run")
    assert undisturbed.generation > 3
    run(service)
    assert base_seq(service) == 80
    assert rows_without_contents(service) == 79, "a person's decision stays"
    forget_snapshots(service)
    other = another()
    assert RUN_STATE.encode(other.state("run")) == RUN_STATE.encode(undisturbed)
    run(other)
    forget_snapshots(other)
    assert RUN_STATE.encode(another().state("run")) == RUN_STATE.encode(undisturbed)


def test_a_replay_begins_with_the_base_and_comes_out_the_same(service: Service, tmp_path) -> None:
    run(service)
    recorded = service.store.recorded("run")
    assert recorded.base is not None
    assert [entry.seq for entry in recorded.entries] == list(range(61, STORED + 1))
    file = tmp_path / "run.jsonl"
    file.write_text("".join(line + "\n" for line in lines(recorded)))
    for again in (recorded, read(file)):
        assert again.base is not None
        outcome = refolded(again, config_of("run", again.config))
        assert (outcome.difference, outcome.first, outcome.relearnt) == (None, 61, False)
        assert outcome.state_compared
    assert read(file).events == recorded.events, "the audit trail is whole"


def test_a_summary_that_was_let_go_is_still_known_when_it_comes_again(service: Service) -> None:
    records = long_run(STEPS)
    run(service)
    rows = service.store.job("run").rows
    first = records[0]
    assert isinstance(first, StepSummary)
    assert service.ingest(first).result is Taken.DUPLICATE
    assert service.ingest(replace(first, scalars={"loss": 7.0})).result is Taken.DUPLICATE
    assert service.store.job("run").rows == rows
    assert service.store.quarantined("run") == 0


@pytest.mark.parametrize("level", [10, 100])
def test_sketches_are_added_up_over_what_was_let_go(service: Service, level: int) -> None:
    records = long_run(STEPS)
    run(service)
    gone = [record for record in records[:60] if isinstance(record, StepSummary)]
    expected = []
    for _, group in groupby(gone, lambda summary: summary.step // level):
        first, *rest = map(Stretch.of, group)
        for one in rest:
            first = first.merged(one)
        expected.append(first)
    found = History(service.database).stretches("run", 1, level)
    assert len(found) == len(expected)
    for stretch, wanted in zip(found, expected, strict=True):
        assert (stretch.summaries, stretch.first_step, stretch.last_step) == (
            wanted.summaries,
            wanted.first_step,
            wanted.last_step,
        )
        assert stretch.negative.tokens == wanted.negative.tokens
        assert isclose(stretch.negative.entropy, wanted.negative.entropy)
        for name, sketch in wanted.sketches.items():
            for mine, its in zip(stretch.sketches[name].signs(), sketch.signs(), strict=True):
                assert (mine.bins, mine.counts) == (its.bins, its.counts)
                assert all(map(partial(isclose, rel_tol=1e-12, abs_tol=1e-12), mine.sums, its.sums))
    assert sum(each.summaries for each in found) == 60
    tokens = sum(summary.sketches["update"].n for summary in gone)
    assert sum(each.sketches["update"].n for each in found) == tokens


def test_a_base_of_another_version_is_learnt_from_again_and_lowers_no_generation(
    service: Service, another: Opener
) -> None:
    records = long_run(STEPS)
    before = service.state("run")
    run(service)
    assert base_seq(service) == 60
    with service.database.write() as connection:
        connection.execute(update(HistoryRow).values(base_schema="older", base_state='{"what": "was"}'))
    forget_snapshots(service)
    other = another()
    after = other.state("run")
    assert (after.attempt, after.last_step, after.tick, after.mode) == (1, before.last_step, before.tick, Mode.AUTO)
    assert after.generation == before.generation
    assert after.overrides == before.overrides
    assert after.person_overrides == before.person_overrides
    last = records[STORED]
    assert isinstance(last, StepSummary)
    assert other.ingest(last).command is None
    outcome = refolded(other.store.recorded("run"), AUTO)
    assert outcome.relearnt
    run(other)
    assert base_seq(other) == 60
    assert RUN_STATE.encode(other.state("run")) == RUN_STATE.encode(another().state("run"))


def raw_points(records, name: str) -> dict[int, float]:
    return {record.step: record.scalars[name] for record in records if isinstance(record, StepSummary)}


def test_a_chart_gets_as_many_points_as_it_asks_for_and_what_is_gone_from_the_roll_ups(service: Service) -> None:
    records = long_run(STEPS)[:STORED]
    truth = raw_points(records, "reward_mean")

    def read_series(points: int | None) -> dict[int, float]:
        [series] = service.store.signals("run", ["reward_mean"], 1, points)
        assert list(series.steps) == sorted(set(series.steps))
        return dict(zip(series.steps, series.values, strict=True))

    assert read_series(5) == truth, "nothing is rolled up yet"
    run(service, Keep())
    assert read_series(None) == read_series(29) == truth
    for points, level in ((28, 10), (3, 10), (2, 100), (1, 100)):
        found = read_series(points)
        rolled = range(0, len(truth), level)
        for first in rolled:
            stretch = {step: truth[step] for step in range(first, min(first + level, len(truth)))}
            kept = {step: value for step, value in found.items() if first <= step < first + level}
            assert kept.items() <= stretch.items()
            assert (min(kept.values()), max(kept.values())) == (min(stretch.values()), max(stretch.values()))
        assert points <= len(found) <= 2 * len(rolled) + 3
    run(service)
    found = read_series(None)
    assert {step: value for step, value in found.items() if step >= 60} == {
        step: value for step, value in truth.items() if step >= 60
    }
    early = {step: value for step, value in found.items() if step < 60}
    assert early.items() <= truth.items()
    assert 6 <= len(early) <= 12


def test_what_is_newer_than_the_roll_ups_is_in_the_chart_at_once(service: Service) -> None:
    records = long_run(STEPS)
    run(service)
    give(service, records[STORED:])
    [series] = service.store.signals("run", ["reward_mean"], 1, 2)
    newest = [record.step for record in records[STORED:] if isinstance(record, StepSummary)]
    assert list(series.steps[-len(newest) :]) == newest


def counts(service: Service, level: int) -> int:
    with service.database.read() as connection:
        return connection.execute(select(func.sum(SignalRollupRow.steps)).filter_by(level=level)).scalar_one()


def test_a_late_summary_is_rolled_up_when_it_comes(service: Service) -> None:
    records = [record for record in long_run(STEPS) if isinstance(record, StepSummary)]
    stored = [record for record in long_run(STEPS)[:STORED] if isinstance(record, StepSummary)]
    in_time = [replace(record, attempt=2) for record in records[:60] if record.step not in (5, 37, 38)]
    give(service, in_time)
    run(service)
    assert counts(service, 10) == counts(service, 100) == len(stored) + 57
    late = [replace(record, attempt=2) for record in records[:60] if record.step in (5, 37, 38)]
    give(service, [*late, *(replace(record, attempt=2) for record in records[60:80])])
    run(service)
    assert counts(service, 10) == counts(service, 100) == len(stored) + 80
    [series] = service.store.signals("run", ["reward_mean"], 2)
    assert series.steps == tuple(range(80))


def test_finer_roll_ups_go_later_and_the_coarser_stand_in(service: Service) -> None:
    records = long_run(STEPS)
    give(service, records[STORED:])
    Retention(service, Keep(summaries=20), pace=replace(PACE, least_kept=20)).pass_over()
    assert base_seq(service) == 280
    with service.database.read() as connection:
        fine = connection.execute(select(func.min(SignalRollupRow.first)).filter_by(level=10)).scalar_one()
    assert fine == 90, "200 rows are kept at level 10, but for whole batches of rolling up"
    stretches = History(service.database).stretches("run", 1, 10)
    assert stretches[0].first_step == 90
    assert sum(each.summaries for each in History(service.database).stretches("run", 1, 100)) == 277
    truth = raw_points(records, "reward_mean")
    [series] = service.store.signals("run", ["reward_mean"], 1)
    found = dict(zip(series.steps, series.values, strict=True))
    assert found.items() <= truth.items()
    assert len([step for step in found if step < 100]) == 2
    assert 18 <= len([step for step in found if 100 <= step < 280]) <= 36
    assert [step for step in found if step >= 280] == list(range(280, STEPS))


def came_at(service: Service, moments: dict[int, float]) -> None:
    """Say when the ledger rows from some on came."""
    with service.database.write() as connection:
        for seq, moment in moments.items():
            connection.execute(update(LedgerRow).where(LedgerRow.seq >= seq).values(received_at=moment))


def test_by_age_and_not_where_the_clock_has_jumped(another: Opener, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    service = another(clock)
    came_at(service, {1: clock.wall - 2 * DAY, 51: clock.wall})
    worker = Retention(service, Keep(days=3), pace=PACE, monotonic=clock.monotonic)
    worker.pass_over()
    assert base_seq(service) == 0
    clock.wall += 400 * DAY
    worker.pass_over()
    assert base_seq(service) == 0
    assert caplog.messages == ["the clock has jumped: nothing is let go for its age until the service is started again"]
    clock.wall -= 400 * DAY
    clock.pass_time(1.5 * DAY)
    give(service, [step_summary(0, job="another")])
    worker.pass_over()
    assert base_seq(service) == 40, "50 are old enough, and 20 go at a time"
    Retention(service, Keep(days=3, summaries=10_000), pace=PACE, monotonic=clock.monotonic).pass_over()
    assert base_seq(service) == 40
    clock.pass_time(10 * DAY)
    give(service, [step_summary(1, job="another")])
    worker.pass_over()
    assert base_seq(service) == 60, "the newest stay whatever their age"


def test_a_time_ahead_of_the_clock_keeps_nothing_for_ever(another: Opener) -> None:
    clock = Clock()
    service = another(clock)
    came_at(service, {1: clock.wall, 31: clock.wall + 4000 * DAY, 32: clock.wall})
    clock.pass_time(10 * DAY)
    give(service, [step_summary(0, job="another")])
    Retention(service, Keep(days=3), pace=PACE, monotonic=clock.monotonic).pass_over()
    assert base_seq(service) == 60


def test_a_clock_that_was_ahead_at_the_start_lets_nothing_fresh_go(another: Opener) -> None:
    clock = Clock()
    service = another(clock)
    came_at(service, {1: clock.wall - 5 * DAY, 31: clock.wall})
    clock.wall += 365 * DAY
    Retention(service, Keep(days=3), pace=PACE, monotonic=clock.monotonic).pass_over()
    assert base_seq(service) == 20, "what was too old when the newest came goes all the same"


def test_two_replicas_at_it_at_once_count_every_row_once(another: Opener) -> None:
    services = [another(), another()]
    undisturbed = RUN_STATE.encode(services[0].state("run"))
    barrier = threading.Barrier(2)

    def work(service: Service) -> None:
        barrier.wait()
        for _ in range(3):
            run(service)

    threads = [threading.Thread(target=work, args=(service,)) for service in services]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts(services[0], 10) == counts(services[0], 100) == STORED - 3
    assert base_seq(services[0]) == 60
    stretches = History(services[0].database).stretches("run", 1, 10)
    assert sum(each.summaries for each in stretches) == 60
    forget_snapshots(services[0])
    assert RUN_STATE.encode(another().state("run")) == undisturbed


def test_a_job_that_cannot_be_read_is_told_once_and_keeps_the_others_from_nothing(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    give(service, [replace(record, job="other") for record in long_run(STEPS)[:STORED]])
    with service.database.write() as connection:
        connection.execute(
            update(LedgerRow).where(LedgerRow.job_id == 1, LedgerRow.seq == 2).values(payload=b'{"a": 1}')
        )
    worker = Retention(service, NEWEST, pace=PACE)
    worker.pass_over()
    worker.pass_over()
    assert {ledger.job: ledger.base for ledger in History(service.database).ledgers()} == {"run": 0, "other": 60}
    assert len(caplog.messages) == 1
    assert "job 'run': entry 2 of its ledger" in caplog.messages[0]


def test_the_stretches_can_be_asked_for(service: Service) -> None:
    run(service)
    with running(service) as url, httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
        answer = http.get("/v1/jobs/run/stretches", params={"level": 10}).json()
        assert (answer["attempt"], answer["level"], len(answer["stretches"])) == (1, 10, 6)
        first = STRETCH.decode(json.dumps(answer["stretches"][0]))
        assert first == History(service.database).stretches("run", 1, 10)[0]
        assert http.get("/v1/jobs/run/stretches", params={"attempt": 7}).json()["stretches"] == []
        assert http.get("/v1/jobs/none/stretches").status_code == 404
        assert http.get("/v1/jobs/run/stretches", params={"level": 7}).status_code == 422
