"""The command line, as a person and a script use it."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from agent_runs import Plant
from api_runs import drive, serving, trimtab

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
    service.store.close()
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


def test_replay_of_a_database_is_identical(ledger: Path) -> None:
    done = trimtab("replay", ledger)
    assert "saved: 31 entries" in done.stdout
    assert done.stdout.rstrip().endswith("identical")
    assert "score_centering" in done.stdout


def test_replay_of_an_exported_file_is_identical(ledger: Path, tmp_path: Path) -> None:
    out = tmp_path / "saved.jsonl"
    trimtab("export", "saved", "--db", ledger, "--out", out)
    assert out.read_text() == trimtab("export", "saved", "--db", ledger).stdout
    outcome = json.loads(trimtab("replay", out, "--json").stdout)
    assert (outcome["identical"], outcome["difference"], outcome["entries"]) == (True, None, 31)
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
    assert outcome["difference"]["where"]


def test_the_program_serves_on_a_free_port_and_ends_on_a_signal(tmp_path: Path) -> None:
    with serving(tmp_path / "agent.db") as (process, url), Client(url) as client:
        assert client.jobs() == []
        process.send_signal(signal.SIGINT)
        assert process.wait(20) is not None


def test_no_command_but_the_trainers_loads_torch() -> None:
    loaded = "import sys; [__import__(name) for name in sys.argv[1:]]; print('torch' in sys.modules)"
    names = ("", ".serve", ".status", ".replay", ".export", ".bench")
    command = [sys.executable, "-c", loaded, *(f"trimtab.api.cli{name}" for name in names)]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout == "False\n"


MISTAKES = {
    "no service": (["status", "--url", "http://127.0.0.1:1"], "nothing answers at http://127.0.0.1:1"),
    "others": (["serve", "--host", "0.0.0.0"], "no access tokens yet"),
    "no folder": (["serve", "--db", "/no/such/folder/agent.db", "--port", "0"], "does not exist; make it"),
    "no ledger": (["replay", "/no/such/file"], "there is no file /no/such/file"),
    "no database": (["export", "run", "--db", "/no/such/file"], "there is no file /no/such/file"),
    "no setting": (["replay", "LEDGER", "--set", "windov=3"], "windov: no such setting"),
    "no value": (["replay", "LEDGER", "--set", "window"], "is not NAME=VALUE"),
    "bad value": (["replay", "LEDGER", "--set", "window=many"], "window: 'many'"),
    "no job": (["export", "nope", "--db", "LEDGER"], "there is no job 'nope'"),
    "no such job to replay": (["replay", "LEDGER", "--job", "nope"], "there is no job 'nope'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_one_line(ledger: Path, mistake: str) -> None:
    arguments, told = MISTAKES[mistake]
    done = trimtab(*(str(ledger) if one == "LEDGER" else one for one in arguments), check=False)
    assert done.returncode == 1, done.stdout
    assert done.stderr.startswith("error: ")
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_a_mistake(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = trimtab("serve", "--db", tmp_path / "agent.db", "--port", port, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: port: cannot listen on 127.0.0.1:{port}")


def test_a_file_with_several_jobs_needs_a_name(tmp_path: Path) -> None:
    service = Service.open(tmp_path / "agent.db")
    for job in ("one", "two"):
        service.ingest(Plant(seed=0, job=job).advance())
    done = trimtab("replay", tmp_path / "agent.db", check=False)
    assert done.returncode == 1
    assert "holds two, one; name one with --job" in done.stderr
    assert "identical" in trimtab("replay", tmp_path / "agent.db", "--job", "one").stdout
