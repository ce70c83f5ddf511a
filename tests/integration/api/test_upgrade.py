"""A database that another version of the program left behind."""

import json
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_runs import Plant
from api_runs import drive, serving, trimtab

from trimtab.agent.config import AgentConfig
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Mode, OperatorAction, OperatorVerb
from trimtab.api.client import Client, ClientError
from trimtab.api.local import LocalTransport
from trimtab.api.restore import UnreadableJobError
from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.storage.codec import RUN_STATE
from trimtab.storage.packing import packed, unpacked


@pytest.fixture
def plant(client: Client) -> Plant:
    """A run that the agent is saving, with a person's hand in it."""
    client.register("run", mode="auto")
    plant = Plant(seed=0, noisy_from=3)
    drive(client, plant, 10)
    client.patch_controls("run", {"clip_low": 0.1}, reason="by hand")
    drive(client, plant, 10)
    return plant


def execute(db: Path, statement: str, *values: Any) -> None:
    with sqlite3.connect(db) as connection:
        connection.execute(statement, values)
    connection.close()


def rewrite(db: Path, seq: int, **changes: Any) -> None:
    """Change what a row of the first job's ledger says, and leave no snapshot of what it said."""
    with sqlite3.connect(db) as connection:
        (data,) = connection.execute("SELECT payload FROM ledger WHERE job_id = 1 AND seq = ?", (seq,)).fetchone()
        changed = packed(json.dumps(json.loads(unpacked(data)) | changes))
        connection.execute("UPDATE ledger SET payload = ? WHERE job_id = 1 AND seq = ?", (changed, seq))
    connection.close()
    gone(db)


def older_schema(db: Path) -> None:
    """The state lacks a field, and has one that is gone by now."""
    execute(db, "UPDATE run_states SET schema = 'older', state = json_insert(json_remove(state, '$.mode'), '$.x', 1)")


def unknown_field(db: Path) -> None:
    execute(db, "UPDATE run_states SET state = json_insert(state, '$.x', 1)")


def damaged(db: Path) -> None:
    execute(db, "UPDATE run_states SET state = '{'")


def gone(db: Path) -> None:
    execute(db, "DELETE FROM run_states")


STALE = [older_schema, unknown_field, damaged, gone]


@pytest.mark.parametrize("make_stale", STALE)
def test_a_snapshot_that_is_not_of_this_version_is_folded_again(
    service: Service, db: Path, plant: Plant, make_stale: Callable[[Path], None]
) -> None:
    service.rebuild("run")
    before, state = service.store.recorded("run"), service.state("run")
    make_stale(db)
    other = Service.open(db)
    assert [job.name for job in other.stale()] == ["run"]
    assert other.state("run") == state
    answer = other.ingest(plant.advance())
    assert (answer.result, answer.command) == ("stored", None)
    other.close()
    after = service.store.recorded("run")
    assert after.entries[:-1] == before.entries
    assert after.events[: len(before.events)] == before.events
    assert after.state is not None
    assert (after.state.schema, after.state.seq) == (RUN_STATE.schema, len(after.entries))
    assert RUN_STATE.decode(after.state.state).tick == 21


def test_a_decision_that_does_not_fit_its_past_any_more_is_passed_over(service: Service, db: Path) -> None:
    service.register("run", config=None, mode=Mode.APPROVE, issuer="me", reason="r")
    plant = Plant(seed=0, noisy_from=0)
    while not service.state("run").proposals:
        service.ingest(plant.advance())
    (proposal,) = service.state("run").proposals
    for verb, number in ((OperatorVerb.APPROVE, proposal.id), (OperatorVerb.SET_MODE, None)):
        mode = Mode.OBSERVE if verb is OperatorVerb.SET_MODE else None
        service.operate(OperatorAction(job="run", verb=verb, issuer="me", reason="r", proposal=number, mode=mode))
    (approval,) = (entry for entry in service.store.recorded("run").entries if '"verb":"approve"' in entry.payload)
    rewrite(db, approval.seq, proposal=99)
    state = Service.open(db).state("run")
    assert (state.mode, state.overrides) == (Mode.OBSERVE, {})


def test_a_state_is_folded_again_before_the_first_step_of_an_embedded_agent(db: Path) -> None:
    service = Service.open(db)
    service.ingest(Plant(seed=0).advance())
    service.close()
    gone(db)
    transport = LocalTransport(db, "run")
    assert transport.service.state("run").tick == 1


def test_serving_folds_again_before_it_is_ready(db: Path) -> None:
    service = Service.open(db)
    service.ingest(Plant(seed=0).advance())
    service.close()
    gone(db)
    assert [job.name for job in service.stale()] == ["run"]
    with serving(db):
        assert service.stale() == []


def test_the_same_settings_are_the_same_whichever_version_wrote_them(service: Service, db: Path) -> None:
    service.ingest(Plant(seed=0).advance())
    execute(db, "UPDATE jobs SET config = json_remove(config, '$.window')")
    service.register("run", config=AgentConfig(), mode=None, issuer="me", reason="r")
    assert service.state("run").tick == 1


def settings_of_another_version(db: Path) -> None:
    execute(db, "UPDATE jobs SET config = json_insert(config, '$.gone', 1) WHERE name = 'run'")
    gone(db)


def entry_of_another_version(db: Path) -> None:
    rewrite(db, 2, step="soon")


UNREADABLE = {"its settings": settings_of_another_version, "entry 2 of its ledger": entry_of_another_version}


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_cannot_be_read_is_told_with_the_job_and_the_remedy(service: Service, db: Path, what: str) -> None:
    plant = Plant(seed=0)
    for _ in range(3):
        service.ingest(plant.advance())
    other_plant = Plant(seed=0, job="other")
    for _ in range(12):
        service.ingest(other_plant.advance())
    UNREADABLE[what](db)
    with running(Service.open(db)) as url, Client(url) as client, httpx.Client(base_url=url) as http:
        is_told(client, http, plant, what)


def is_told(client: Client, http: httpx.Client, plant: Plant, what: str) -> None:
    told = f"job: job 'run': {what}, which another version of trimtab stored, cannot be read by this one"
    with pytest.raises(ClientError, match=told) as caught:
        client.ingest(plant.advance())
    assert caught.value.status == 503, "so that the trainer keeps its summaries"
    assert "run that version, or start a job of another name" in str(caught.value)
    with pytest.raises(ClientError, match=told):
        client.health("run")
    other, run = client.jobs()
    assert (other.name, other.problem, other.step) == ("other", None, 11)
    assert (run.name, run.state, run.step) == ("run", "not_observed", None)
    assert run.problem is not None
    assert "run that version" in run.problem
    metrics = http.get("/metrics")
    assert metrics.status_code == 200
    assert 'trimtab_step{job="other"}' in metrics.text


def test_a_command_tells_it_in_one_line(service: Service, db: Path) -> None:
    service.ingest(Plant(seed=0).advance())
    settings_of_another_version(db)
    with running(Service.open(db)) as url:
        for done in (trimtab("replay", db, check=False), trimtab("status", "run", "--url", url, check=False)):
            assert (done.returncode, done.stderr.count("\n")) == (2, 1)
            assert "job 'run': its settings" in done.stderr
        assert "job 'run': its settings" in trimtab("status", "--url", url).stdout


def test_an_embedded_agent_tells_it_before_step_0(client: Client, db: Path) -> None:
    drive(client, Plant(seed=0), 1)
    settings_of_another_version(db)
    with pytest.raises(UnreadableJobError, match="job 'run': its settings"):
        LocalTransport(db, "run")


def test_serving_tells_it_and_goes_on(client: Client, db: Path) -> None:
    drive(client, Plant(seed=0), 1)
    settings_of_another_version(db)
    with serving(db, stderr=subprocess.PIPE) as (process, url), Client(url) as other:
        assert [job.name for job in other.jobs()] == ["run"]
        process.terminate()
        assert process.stderr is not None
        told = [one["message"] for one in map(json.loads, process.stderr) if one["level"] == "warning"]
        assert told[0].startswith("job 'run': its settings")


def test_settings_without_a_ledger_may_be_replaced(client: Client, db: Path) -> None:
    client.register("run", config={"window": 7})
    settings_of_another_version(db)
    assert client.job("run").problem is not None
    assert client.register("run", config={"window": 8}).problem is None


def test_initial_states_are_not_kept(service: Service) -> None:
    service.register("run", config=None, mode=None, issuer="me", reason="r")
    assert service.state("run") == RunState.initial("run")
    assert service.store.read("run", lambda past: past.snapshot()) is None
    assert json.loads(service.store.job("run").config)["window"] == 5
