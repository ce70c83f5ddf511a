"""The command line, as a person and a script use it."""

import json
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from agent_runs import Plant
from api_runs import drive, serving, trimtab

import trimtab as face
from trimtab.agent.state import Mode
from trimtab.api.client import Client
from trimtab.api.service import Service


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with one run that was saved, a person's hand in it, and a NaN."""
    db = tmp_path_factory.mktemp("recorded") / "agent.db"
    service = Service.open(db)
    service.register("saved", config=None, mode=Mode.AUTO, issuer="me", reason="to be saved")
    plant = Plant(seed=0, noisy_from=3, job="saved")
    for step in range(30):
        summary = plant.advance()
        summary.scalars["grad_norm"] = float("nan") if step == 20 else 1.0
        plant.obey(service.ingest(summary).command)
    service.close()
    return db


def test_status_of_everything_and_of_one_job(client: Client, url: str) -> None:
    client.register("saved", mode="auto")
    drive(client, Plant(seed=0, noisy_from=0, job="saved"), 12)
    everything = json.loads(trimtab("status", "--url", url, "--json").stdout)
    assert [job["name"] for job in everything["jobs"]] == ["saved"]
    one = json.loads(trimtab("status", "saved", "--url", url, "--json").stdout)
    assert one["controls"]["overrides"] == {"ratio_reference": "recomputed", "centering": True}
    text = trimtab("status", "saved", "--url", url).stdout
    assert "mismatch" in text
    assert "ratio_reference = recomputed, centering = True (in effect)" in text
    assert "saved" in trimtab("status", "--url", url).stdout


def test_a_silent_job_is_told_with_how_long_it_has_been(client: Client, url: str, db: Path) -> None:
    drive(client, Plant(seed=0, job="gone"), 3)
    assert "silent" not in trimtab("status", "--url", url).stdout
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE ledger SET received_at = received_at - 10800")
    told = "silent for 3 h: it has finished, was stopped, or does not reach the agent"
    assert f"gone: {told}" in trimtab("status", "--url", url).stdout
    assert f"{told}; what follows was true" in trimtab("status", "gone", "--url", url).stdout


def test_a_narrow_terminal_cuts_no_attempt(client: Client, url: str) -> None:
    plant = Plant(seed=0, job="a-name-that-is-longer-than-most-names-of-runs-are", attempt=1796008851, step=123456)
    drive(client, plant, 1)
    text = trimtab("status", "--url", url, columns=80).stdout
    assert "1796008851" in text
    assert "123457" in text
    assert " ago" in text
    assert max(map(len, text.splitlines())) <= 80


def test_replay_of_a_database_is_identical(ledger: Path) -> None:
    done = trimtab("replay", ledger)
    assert "saved: 31 entries" in done.stdout
    assert done.stdout.rstrip().endswith("identical")
    assert "score_centering" in done.stdout


def test_replay_of_an_exported_file_is_identical(ledger: Path, tmp_path: Path) -> None:
    out = tmp_path / "saved.jsonl"
    trimtab("export", "saved", "--db", ledger, "--out", out)
    assert out.read_text() == trimtab("export", "saved", "--db", ledger).stdout
    everything = json.loads(trimtab("replay", out, "--json").stdout)
    (outcome,) = everything["jobs"]
    assert everything["identical"] is outcome["identical"] is outcome["state_compared"] is True
    assert (outcome["difference"], outcome["entries"]) == (None, 31)
    assert "controls_changed" in [event["kind"] for event in outcome["events"]]


@pytest.mark.parametrize("line", ["entry", "event", "state"])
def test_replay_of_a_file_that_was_tampered_with_names_the_difference(ledger: Path, tmp_path: Path, line: str) -> None:
    lines = [json.loads(text) for text in trimtab("export", "saved", "--db", ledger).stdout.splitlines()]
    if line == "entry":
        entry = next(one["entry"] for one in lines if one.get("entry", {}).get("step") == 15)
        entry["payload"]["scalars"]["reward_mean"] = 0.0
    elif line == "event":
        next(one["event"] for one in lines if "event" in one)["message"] = "nothing happened"
    else:
        lines[-1]["state"]["generation"] = 7
    out = tmp_path / "tampered.jsonl"
    out.write_text("".join(json.dumps(one) + "\n" for one in lines))
    done = trimtab("replay", out, check=False)
    assert done.returncode == 1
    assert "NOT identical; first at " in done.stdout
    where = {"entry": "", "event": "event 1.message", "state": "state.generation"}[line]
    assert where in done.stdout


def test_replay_under_other_settings_tells_what_would_differ(ledger: Path) -> None:
    done = trimtab("replay", ledger, "--set", "mode=observe", "--set", "detectors.mismatch.std_limit=5", "--json")
    outcome = json.loads(done.stdout)
    assert outcome["identical"] is False
    assert outcome["jobs"][0]["difference"]["where"]


def test_the_program_serves_on_a_free_port_and_ends_on_a_signal(tmp_path: Path) -> None:
    with serving(tmp_path / "agent.db") as (process, url), Client(url) as client:
        assert client.jobs() == []
        process.send_signal(signal.SIGINT)
        assert process.wait(20) is not None


def test_no_command_but_the_trainers_loads_torch() -> None:
    loaded = "import sys; [__import__(name) for name in sys.argv[1:]]; print('torch' in sys.modules)"
    names = ("", ".serve", ".status", ".sync", ".replay", ".export", ".bench")
    command = [sys.executable, "-c", loaded, *(f"trimtab.api.cli{name}" for name in names)]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout == "False\n"


MISTAKES = {
    "no service": (["status", "--url", "http://127.0.0.1:1"], "nothing answers at http://127.0.0.1:1"),
    "others": (["serve", "--host", "0.0.0.0"], "has no admin's token that is valid"),
    "no folder": (["serve", "--db", "/no/such/folder/agent.db", "--port", "0"], "does not exist; make it"),
    "no ledger": (["replay", "/no/such/file"], "there is no file /no/such/file"),
    "no database": (["export", "run", "--db", "/no/such/file"], "there is no file /no/such/file"),
    "no setting": (["replay", "LEDGER", "--set", "windov=3"], "windov: no such setting"),
    "no value": (["replay", "LEDGER", "--set", "window"], "is not NAME=VALUE"),
    "bad value": (["replay", "LEDGER", "--set", "window=many"], "window: 'many'"),
    "no folder to deliver": (["sync", "/no/such/folder"], "there is no folder /no/such/folder"),
    "no address": (["sync", "/tmp", "--url", "ftp://host"], "url: 'ftp://host' has no host"),
    "no job": (["export", "nope", "--db", "LEDGER"], "there is no job 'nope'"),
    "no such job to replay": (["replay", "LEDGER", "--job", "nope"], "there is no job 'nope'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_one_line(ledger: Path, mistake: str) -> None:
    arguments, told = MISTAKES[mistake]
    done = trimtab(*(str(ledger) if one == "LEDGER" else one for one in arguments), check=False)
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith("error: ")
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_a_mistake(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = trimtab("serve", "--db", tmp_path / "agent.db", "--port", port, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: port: cannot listen on 127.0.0.1:{port}")


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """A database with two jobs that have a ledger, and one that has none."""
    service = Service.open(tmp_path / "agent.db")
    for job in ("one", "two"):
        service.ingest(Plant(seed=0, job=job).advance())
    service.register("three", config=None, mode=None, issuer="me", reason="to come")
    service.close()
    return tmp_path / "agent.db"


def test_every_job_of_a_file_is_replayed_one_line_each(several: Path) -> None:
    lines = trimtab("replay", several).stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["one", "two", "three"]
    assert all(line.endswith("identical") for line in lines)
    assert "attempt started" in trimtab("replay", several, "--verbose").stdout
    assert "attempt started" in trimtab("replay", several, "--job", "one").stdout
    outcome = json.loads(trimtab("replay", several, "--json").stdout)
    assert [(job["job"], job["entries"], job["identical"]) for job in outcome["jobs"]] == [
        ("one", 1, True),
        ("two", 1, True),
        ("three", 0, True),
    ]


def test_one_job_that_differs_fails_the_whole_and_the_others_are_still_told(several: Path) -> None:
    with sqlite3.connect(several) as connection:
        connection.execute("UPDATE events SET message = 'tampered' WHERE job_id = 1")
    done = trimtab("replay", several, check=False)
    assert done.returncode == 1
    assert "one: 1 entries, 1 events: NOT identical; first at event 1.message" in done.stdout
    assert "two: 1 entries, 1 events: identical" in done.stdout
    assert json.loads(trimtab("replay", several, "--json", check=False).stdout)["identical"] is False


def test_a_job_without_a_ledger_cannot_be_replayed_alone(several: Path) -> None:
    done = trimtab("replay", several, "--job", "three", check=False)
    assert done.returncode == 2
    assert "the ledger of three is empty" in done.stderr


def test_a_state_of_another_version_is_not_compared(several: Path) -> None:
    with sqlite3.connect(several) as connection:
        connection.execute("UPDATE run_states SET schema = 'older', state = '{}' WHERE job_id = 1")
    told = trimtab("replay", several, "--job", "one").stdout
    assert "identical (events only: no state of this version is stored of its last row)" in told


@pytest.mark.parametrize("command", ["replay", "export"])
@pytest.mark.parametrize(
    ("revision", "told"), [("0001", "is of an older version (schema 0001"), ("9999", "was written by a newer version")]
)
def test_a_file_of_another_schema_is_refused_and_left_alone(
    several: Path, command: str, revision: str, told: str
) -> None:
    with sqlite3.connect(several) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    arguments = ["replay", several] if command == "replay" else ["export", "one", "--db", several]
    done = trimtab(*arguments, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert told in done.stderr
    with sqlite3.connect(several) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(revision,)]


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE mine (x)")
    done = trimtab("replay", tmp_path / "other.db", check=False)
    assert done.returncode == 2
    assert "is no database of trimtab's" in done.stderr


def test_a_recording_is_delivered_and_a_refused_summary_kept(client: Client, url: str, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    with face.attach(f"file:{folder}", job="offline", attempt=1) as emitter:
        for step in range(5):
            emitter.end_step(step=step, scalars={"reward_mean": 0.5})
    sent = json.loads(trimtab("sync", folder, "--url", url, "--json").stdout)
    assert sent == {"sent": 5, "rejected": 0, "left": 0, "barred": "", "damaged": 0}
    assert (client.job("offline").step, client.job("offline").rows) == (4, 5)
    assert "0 summaries delivered" in trimtab("sync", folder, "--url", url).stdout
    with face.attach(f"file:{folder}", job="offline", attempt=1) as emitter:
        emitter.end_step(step=4, scalars={"reward_mean": 0.9})
    away = trimtab("sync", folder, "--url", "http://127.0.0.1:1", check=False)
    assert (away.returncode, "1 left: nothing answers" in away.stdout) == (1, True)
    refused = trimtab("sync", folder, "--url", url, check=False)
    assert (refused.returncode, f"1 refused for good, kept in {folder / 'rejected'}" in refused.stdout) == (1, True)
