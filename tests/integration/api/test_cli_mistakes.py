"""Odd files, odd text and odd places on the command line."""

import json
import os
import re
import stat
import threading
from pathlib import Path

import pytest
from agent_runs import Plant
from api_runs import trimtab

from trimtab.agent.state import Mode
from trimtab.api.client import Client, ClientError
from trimtab.api.service import Service
from trimtab.hooks.records import StepSummary

REASON = "go [/b] ahead"


def recorded(db: Path) -> Path:
    service = Service.open(db)
    service.register("run", config=None, mode=Mode.ADVISE, issuer="me", reason=REASON)
    service.ingest(Plant(seed=0).advance())
    service.close()
    return db


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("odd") / "agent.db")


@pytest.fixture(scope="module")
def exported(ledger: Path) -> str:
    return trimtab("export", "run", "--db", ledger).stdout


@pytest.mark.parametrize("name", ["we?ird.db", "p%20q.db", "c#d.db", "[b].db"])
def test_a_database_of_any_name_is_read_where_it_is(tmp_path: Path, name: str) -> None:
    done = trimtab("replay", recorded(tmp_path / name))
    assert done.stdout.rstrip().endswith("identical")
    assert {path.name.removesuffix("-shm").removesuffix("-wal") for path in tmp_path.iterdir()} == {name}


def test_what_people_wrote_is_printed_as_it_is(ledger: Path, client: Client, url: str) -> None:
    assert REASON in trimtab("replay", ledger).stdout
    client.register("run", mode="advise")
    client.set_mode("run", "auto", reason=REASON)
    client.ingest(Plant(seed=0).advance())
    assert re.search(r"attempt 1, step 0, \d+ s ago", trimtab("status", "run", "--url", url).stdout)


def test_an_export_keeps_a_link_and_writes_into_a_pipe(ledger: Path, exported: str, tmp_path: Path) -> None:
    file, link, pipe = tmp_path / "real.jsonl", tmp_path / "link.jsonl", tmp_path / "pipe"
    link.symlink_to(file)
    trimtab("export", "run", "--db", ledger, "--out", link)
    assert (link.is_symlink(), file.read_text()) == (True, exported)
    os.mkfifo(pipe)
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()))
    reader.start()
    trimtab("export", "run", "--db", ledger, "--out", pipe)
    reader.join(60)
    assert heard == [exported]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert {path.name for path in tmp_path.iterdir()} == {"real.jsonl", "link.jsonl", "pipe"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["export", "run", "--out", "/no/such/folder/x"], "out: /no/such/folder/x cannot be written (No such file"),
        (["export", "run", "--out", "/"], "out: / cannot be written (Is a directory)"),
        (["export", "run", "--out", "/dev/full"], "out: /dev/full cannot be written (No space left"),
        (["status", "--url", "http://[::1"], "url: 'http://[::1' is no address"),
        (["status", "--url", "http://127.0.0.1:abc"], "url: 'http://127.0.0.1:abc' is no address"),
    ],
)
def test_an_odd_place_is_told_in_one_line(ledger: Path, arguments: list[str], told: str) -> None:
    done = trimtab(*arguments, *(["--db", str(ledger)] if arguments[0] == "export" else []), check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"error: {told}")


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ("other", "line 2: not a line of a ledger (job: the entry is of 'run', the file of 'other')"),
        ("../x", "line 1: not a line of a ledger (job: '../x' must be"),
        (7, "line 1: not a line of a ledger (job: 7 is not text)"),
    ],
)
def test_a_file_of_another_job_is_told_in_one_line(exported: str, tmp_path: Path, job: object, told: str) -> None:
    header, rest = exported.split("\n", 1)
    file = tmp_path / "other.jsonl"
    file.write_text(json.dumps({**json.loads(header), "job": job}) + "\n" + rest)
    done = trimtab("replay", file, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert told in done.stderr


def test_a_damaged_database_is_told_in_one_line(ledger: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.db"
    whole = ledger.read_bytes()
    damaged.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))
    done = trimtab("replay", damaged, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: db: ")
    assert done.stderr.rstrip().endswith("database disk image is malformed")


def test_a_run_in_a_log_tells_its_steps_and_one_reward_where_there_is_one(tmp_path: Path) -> None:
    settings = {
        "steps": "2",
        "rollout.prompts": "2",
        "rollout.group_size": "2",
        "rollout.lag": "0",
        "update.minibatches": "1",
        "warm_start.steps": "1",
        "evaluation.prompts": "4",
        "model.width": "32",
        "model.layers": "1",
    }
    arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    done = trimtab("train", *arguments, "--out", tmp_path / "run")
    told = [line.partition(":")[0] for line in done.stderr.splitlines()]
    assert told[-2:] == ["step 1 of 2", "step 2 of 2"]
    assert "reward of the trained policy, sampled in bf16" in done.stdout
    assert "sampled as in the run" not in done.stdout


ORDERS = "a\x1b[2Jb\x1b]0;owned\x07c\x9b31md"
"""It would clear a screen and name its window, and has four characters too many."""
SHOWN = "a[2Jb]0;ownedc31md"


def test_what_jobs_and_people_wrote_gives_the_terminal_no_orders(client: Client, url: str) -> None:
    client.register("run")
    for step in range(2):
        client.ingest(StepSummary(job="run", attempt=1, step=step, scalars={ORDERS: 1.5, "rew[/b]ard": 0.25}))
    client.set_mode("run", "auto", reason=f"{ORDERS} [/b]", issuer=f"eve{ORDERS}")
    lines = trimtab("signals", "run", "--url", url).stdout
    heading = trimtab("signals", "run", ORDERS, "rew[/b]ard", "--url", url).stdout
    events = trimtab("events", "run", "--url", url).stdout
    refused = trimtab("status", f"no{ORDERS}", "--url", url, check=False).stderr
    for told in (lines, heading, events, refused):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", told)
    assert [line.split() for line in lines.splitlines() if SHOWN in line] == [[SHOWN, "0", "to", "1", *["1.5"] * 3]]
    assert heading.split() == ["step", SHOWN, "rew[/b]ard", "0", "1.5", "0.25", "1", "1.5", "0.25"]
    assert f"{SHOWN} [/b]" in events
    assert f"by eve{SHOWN}" in events


@pytest.mark.parametrize(
    ("arguments", "field"),
    [(["signals", "\udcff"], "name"), (["signals", "run", "\udcff"], "name"), (["jobs", "\udcff"], "query")],
)
def test_an_argument_that_is_no_text_is_told_in_one_line(url: str, arguments: list[str], field: str) -> None:
    done = trimtab(*arguments, "--url", url, check=False)
    told = f"error: {field}: '\\udcff' is no UTF-8 text; give it in that encoding\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


def test_a_job_of_no_text_is_refused_by_whatever_sends_it_in_a_body(client: Client) -> None:
    client.register("run")
    with pytest.raises(ClientError) as refused:
        client.set_mode("run", "auto", reason="\udcff")
    assert (refused.value.status, str(refused.value).partition(":")[0]) == (422, "reason")


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}"])
def test_a_database_that_is_not_there_is_not_made_by_looking_for_it(tmp_path: Path, form: str) -> None:
    there, out = tmp_path / "typo.db", tmp_path / "out"
    for arguments in (["restore", "--db", form.format(there)], ["backup", out, "--db", form.format(there)]):
        done = trimtab(*arguments, check=False)
        assert (done.returncode, f"db: there is no file {there}" in done.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []
