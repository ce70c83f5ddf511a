"""Backups: as of one moment, complete, put back on either kind of database, and told of to every job."""

from __future__ import annotations

import resource
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_runs import step_summary
from api_runs import trimtab
from long_runs import AUTO, give, long_run, opened
from postgres import PostgresServer
from sqlalchemy import select

from trimtab.agent.state import Mode
from trimtab.api.client import Client
from trimtab.api.recovery import mark_restored, recover
from trimtab.api.refold import refolded
from trimtab.api.retention import Keep, Pace, Retention
from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.hooks.controls import Controls
from trimtab.hooks.fence import Accepted, fenced
from trimtab.hooks.records import Command, StepSummary
from trimtab.storage.audit import Audit, verified
from trimtab.storage.backup import back_up, copy
from trimtab.storage.codec import RUN_STATE
from trimtab.storage.database import Database
from trimtab.storage.engine import StorageError
from trimtab.storage.tables import Base

Rows = dict[str, set[tuple[Any, ...]]]


@pytest.fixture
def service(database_url: str) -> Iterator[Service]:
    service = opened(database_url)
    give(service, long_run(70))
    Retention(service, Keep(summaries=1), pace=Pace(worth_rolling_up=5, let_go_at_once=5, least_kept=20)).pass_over()
    yield service
    service.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where there is nothing yet."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield str(tmp_path / "restored.db")
        else:
            yield stack.enter_context(request.getfixturevalue("postgres").database())


def rows_of(database: Database) -> Rows:
    with database.read() as connection:
        return {
            table.name: {
                tuple(bytes(value) if isinstance(value, memoryview) else value for value in row)
                for row in connection.execute(select(table))
            }
            for table in Base.metadata.sorted_tables
        }


def test_everything_comes_back_on_either_kind_and_every_job_is_told(
    service: Service, target: str, tmp_path: Path
) -> None:
    before, state = rows_of(service.database), service.state("run")
    back_up(service.database, tmp_path / "backup.db")
    assert (tmp_path / "backup.db").stat().st_mode & 0o777 == 0o600
    recovered = recover(tmp_path / "backup.db", target, issuer="ada")
    assert (recovered.jobs, recovered.unreadable) == (("run",), ())
    restored = opened(target)
    after = rows_of(restored.database)
    for name in before.keys() - {"run_states"}:
        assert before[name] <= after[name], name
    new = {name: len(after[name] - before[name]) for name in before if after[name] != before[name]}
    told = {"ledger": 1, "events": 1, "audit": 1, "run_states": 1, "alerts": 1, "outbox": 1}
    assert new == told, "it is on record, and people are told of it"
    verified(Audit(restored.database).links())
    now = restored.state("run")
    assert (now.generation, now.overrides, now.mode) == (state.generation, state.overrides, Mode.AUTO)
    assert now.behind
    assert "backup is lost" in now.ladder.locked
    [event] = restored.store.events("run", kinds=["restored"])
    assert event.message.startswith("restored from backup.db: what was decided after that backup is lost")
    assert refolded(restored.store.recorded("run"), AUTO).difference is None
    give(restored, [step_summary(0, job="another")])  # numbers go on behind those that were copied
    assert [job.name for job in restored.store.jobs()] == ["another", "run"]
    restored.close()


def test_a_backup_is_of_one_moment_while_the_service_writes(service: Service, tmp_path: Path) -> None:
    records = [record for record in long_run(300) if isinstance(record, StepSummary)][70:]
    writer = threading.Thread(target=give, args=(service, records, 5))
    writer.start()
    files = [tmp_path / f"{i}.db" for i in range(4)]
    for file in files:
        back_up(service.database, file)
    writer.join()
    for file in files:
        kept = opened(file)
        recorded = kept.store.recorded("run")
        assert 70 <= recorded.entries[-1].seq <= 70 + 1 + len(records)
        assert refolded(recorded, AUTO).difference is None
        kept.close()


def test_nothing_is_written_over(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    back_up(service.database, file)
    content = file.read_bytes()
    with pytest.raises(StorageError, match=r"backup\.db exists; move it away"):
        back_up(service.database, file)
    with pytest.raises(StorageError, match=r"backup\.db exists; move it away"):
        recover(file, str(file), issuer="ada")
    (tmp_path / "gone.db-wal").write_bytes(b"what an old database left")
    with pytest.raises(StorageError, match=r"gone\.db-wal exists; move it away"):
        recover(file, str(tmp_path / "gone.db"), issuer="ada")
    assert file.read_bytes() == content
    assert not list(tmp_path.glob("*.partial*"))


def test_a_postgresql_that_holds_something_is_left_as_it_is(postgres: PostgresServer, tmp_path: Path) -> None:
    source = opened(tmp_path / "agent.db")
    give(source, [step_summary(0)])
    back_up(source.database, tmp_path / "backup.db")
    with postgres.database() as url:
        there = opened(url)
        give(there, [step_summary(0, job="mine")])
        before = rows_of(there.database)
        with pytest.raises(StorageError, match="is not empty: it has rows in jobs; give an empty one"):
            recover(tmp_path / "backup.db", url, issuer="ada")
        assert rows_of(there.database) == before
        there.close()
    source.close()


@pytest.mark.parametrize("what", ["text", "another program's", "cut short", "newer"])
def test_what_is_no_backup_is_told_and_nothing_is_made(what: str, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    source = opened(tmp_path / "agent.db")
    give(source, [step_summary(step) for step in range(20)])
    back_up(source.database, file)
    source.close()
    if what == "text":
        file.write_text("remember the milk\n" * 1000)
    elif what == "cut short":
        file.write_bytes(file.read_bytes()[:20_000])
    elif what == "newer":
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
    else:
        file.unlink()
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("CREATE TABLE milk (litres INTEGER)")
    with pytest.raises(StorageError):
        recover(file, str(tmp_path / "restored.db"), issuer="ada")
    assert not list(tmp_path.glob("restored*"))


def test_a_disk_that_is_full_leaves_nothing_behind(tmp_path: Path) -> None:
    source = opened(tmp_path / "agent.db")
    give(source, [step_summary(step) for step in range(20)])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(StorageError, match="cannot be written"):
            back_up(source.database, tmp_path / "backup.db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.glob("backup*"))
    source.close()


class Trainer:
    """What a trainer's hook does: it reports what is in effect, and lets commands through its fence."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.step = -1
        self.accepted = Accepted()

    def steps(self, count: int) -> Command | None:
        command = None
        for _ in range(count):
            self.step += 1
            overrides = self.accepted.overrides
            applied = Controls(ratio_reference="sampler").overlaid(overrides)
            summary = step_summary(self.step, generation=self.accepted.generation, overrides=overrides, applied=applied)
            command = self.client.ingest(summary).command
            found = fenced(command, job="run", attempt=1, current=self.accepted, capabilities=summary.capabilities)
            self.accepted = found or self.accepted
        return command


def test_a_trainer_at_generation_7_and_a_backup_of_generation_3(tmp_path: Path) -> None:
    """What a person set since holds, what was lifted since stays lifted, and what is set next is taken."""
    service = opened(tmp_path / "agent.db")
    with running(service) as url, Client(url) as client:
        trainer = Trainer(client)
        trainer.steps(3)
        for overrides in ({"clip_low": 0.1}, {"clip_high": 0.3}, {"clip_high": 0.35}):
            client.patch_controls("run", overrides, reason="why")
            trainer.steps(2)
        assert trainer.accepted == Accepted(generation=3, overrides={"clip_low": 0.1, "clip_high": 0.35})
        back_up(service.database, tmp_path / "backup.db")
        for lifted in ({"clip_low": None}, {"clip_high": 0.25}, {"centering": True}, {"clip_high": 0.26}):
            client.patch_controls("run", lifted, reason="why")
            trainer.steps(2)
        held = {"clip_high": 0.26, "centering": True}
        assert trainer.accepted == Accepted(generation=7, overrides=held)
    service.close()
    recover(tmp_path / "backup.db", str(tmp_path / "restored.db"), issuer="ada")
    restored = opened(tmp_path / "restored.db")
    with running(restored) as url, Client(url) as client:
        trainer.client = client
        assert trainer.steps(4) is None
        assert trainer.accepted == Accepted(generation=7, overrides=held)
        controls = client.controls("run")
        assert (controls.generation, controls.overrides) == (7, held)
        assert "set the mode again" in controls.locked
        client.patch_controls("run", {"clip_high": None}, reason="why")
        trainer.steps(2)
        assert trainer.accepted == Accepted(generation=8, overrides={"centering": True})
        told, taken = restored.store.events("run", kinds=["restored", "controls_taken_over"])
        assert (told.kind, told.detail["wanted"]) == ("restored", {"clip_low": 0.1, "clip_high": 0.35})
        assert taken.detail["lifted"] == {"clip_low": 0.1, "clip_high": 0.35}
        assert taken.detail["adopted"] == held
    restored.close()


def test_a_database_put_back_by_other_means_is_marked(service: Service) -> None:
    """While it is served: the server sees what another process wrote."""
    with running(service) as url, httpx.Client(base_url=url, trust_env=False, timeout=10) as http:
        database = Database(service.database.engine.url.render_as_string(hide_password=False))
        assert mark_restored(database, issuer="ada").jobs == ("run",)
        database.close()
        assert "set the mode again" in http.get("/v1/jobs/run/controls").json()["locked"]


def test_the_commands(tmp_path: Path) -> None:
    service = opened(tmp_path / "agent.db")
    give(service, [step_summary(step) for step in range(3)])
    state = RUN_STATE.encode(service.state("run"))
    service.close()
    backup, restored = tmp_path / "backup.db", tmp_path / "restored.db"
    told = trimtab("backup", backup, "--db", tmp_path / "agent.db").stdout
    assert told.endswith("readable by you alone\n")
    kept = opened(backup)
    assert RUN_STATE.encode(kept.state("run")) == state
    kept.close()
    told = trimtab("restore", backup, "--db", restored).stdout
    still = "The agent of its 1 job holds still: set a job's mode to let its agent act again. "
    assert told.startswith(f"{backup} is restored to {restored}. {still}")
    marked = trimtab("restore", "--db", restored).stdout
    assert marked.startswith(f"{restored} was restored by other means, and is marked so. {still}")
    refused = trimtab("restore", backup, "--db", restored, check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    missing = trimtab("backup", tmp_path / "b.db", "--db", tmp_path / "none.db", check=False)
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)


def test_moving_from_a_file_to_a_server_keeps_every_row(postgres: PostgresServer, tmp_path: Path) -> None:
    source = opened(tmp_path / "agent.db")
    give(source, long_run(70))
    source.close()
    source = opened(tmp_path / "agent.db")
    with postgres.database() as url:
        target = opened(url)
        copy(source.database, target.database)
        assert rows_of(target.database) == rows_of(source.database)
        assert RUN_STATE.encode(target.state("run")) == RUN_STATE.encode(source.state("run"))
        target.close()
    source.close()
