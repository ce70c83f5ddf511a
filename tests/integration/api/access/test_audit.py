"""The audit log of a service at work: who did what, and that nobody can change it unseen."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest
from access_runs import bearing, issued
from agent_runs import Plant
from api_runs import drive, trimtab_here

from trimtab.api.access.scopes import Scope
from trimtab.api.client import Client
from trimtab.api.service import Service
from trimtab.storage.audit import Audit, Link, link_of, verified


def logged(service: Service, skip: int = 0) -> list[Link]:
    return list(Audit(service.database).links())[skip:]


def test_every_action_of_a_person_is_on_record(service: Service, url: str, held: dict[Scope, str]) -> None:
    with Client(url, held[Scope.INGEST]) as trainer:
        drive(trainer, Plant(seed=0), 1)
    before = len(logged(service))
    with Client(url, held[Scope.CONTROL]) as ada:
        ada.patch_controls("run", {"centering": True}, reason="try centering", issuer="ada")
        ada.set_mode("run", "advise", reason="let it talk")
        ada.silence("run", "reward", steps=5, reason="a new dataset")
        ada.unsilence("run", "reward", reason="it is in")
        ada.archive("run", reason="done")
        ada.kill("run", reason="not tonight")
    deeds = logged(service, before)
    assert [(deed.action, deed.reason) for deed in deeds] == [
        ("patch_controls", "try centering"),
        ("set_mode", "let it talk"),
        ("silence", "a new dataset"),
        ("unsilence", "it is in"),
        ("archive", "done"),
        ("kill", "not tonight"),
    ]
    id = held[Scope.CONTROL].split("_")[1]
    assert {(deed.actor, deed.token, deed.ip, deed.job) for deed in deeds} == {
        ("the control token", id, "127.0.0.1", "run")
    }
    details: list[dict[str, Any]] = [json.loads(deed.detail) for deed in deeds]
    assert (details[0]["before"], details[0]["after"], deeds[0].generation) == ({}, {"centering": True}, 1)
    assert details[0]["issuer"] == "ada"
    assert (details[1]["before"], details[1]["after"]) == ("observe", "advise")
    assert (details[2]["target"], details[2]["steps"]) == ("reward", 5)
    assert (details[5]["before"], details[5]["after"], deeds[5].generation) == ({"centering": True}, {}, 2)
    assert verified(logged(service)).number == before + 6


def test_jobs_that_are_made_and_settings_that_change_are_on_record(admin: httpx.Client, service: Service) -> None:
    before = len(logged(service))
    for window in (5, 5, 7):
        body = {"config": {"window": window}, "reason": f"a window of {window}"}
        assert admin.put("/v1/jobs/run", json=body).status_code == 200
    deeds = logged(service, before)
    assert [(deed.action, deed.job, deed.reason, json.loads(deed.detail)["window"]) for deed in deeds] == [
        ("register", "run", "a window of 5", 5),
        ("register", "run", "a window of 7", 7),
    ]


def test_what_is_refused_is_not_done_and_not_on_record(service: Service, admin: httpx.Client) -> None:
    admin.put("/v1/jobs/run", json={})
    before = len(logged(service))
    assert admin.patch("/v1/jobs/run/controls", json={"overrides": {"nope": 1}, "reason": "r"}).status_code == 422
    assert admin.post("/v1/jobs/other/kill", json={"reason": "r"}).status_code == 404
    assert logged(service, before) == []


def test_what_the_agent_does_by_itself_is_on_record(service: Service, client: Client) -> None:
    client.register("run", mode="auto")
    drive(client, Plant(seed=1, noisy_from=120), 200)
    done = [deed for deed in logged(service) if deed.actor == "agent"]
    assert {deed.action for deed in done} >= {"controls_changed"}
    first = next(deed for deed in done if deed.action == "controls_changed")
    detail = json.loads(first.detail)
    assert (detail["before"], bool(detail["after"]), first.generation) == ({}, True, 1)
    events = {event.number: event for event in service.store.events("run")}
    acts = [event for event in events.values() if event.kind in ("controls_changed", "rolled_back", "locked_out")]
    assert len([deed for deed in done if deed.action != "checkpoint_pinned"]) == len(acts)
    assert detail["seq"] == acts[0].seq
    assert verified(logged(service)).number == len(logged(service))


def test_without_tokens_it_says_that_somebody_on_the_machine_did_it(service: Service, client: Client) -> None:
    client.register("run")
    client.kill("run", reason="enough", issuer="bob")
    made, deed = logged(service)
    assert (made.action, made.actor) == ("register", "local")
    assert (deed.action, deed.actor, deed.token, deed.ip) == ("kill", "local", "", "127.0.0.1")
    assert json.loads(deed.detail)["issuer"] == "bob"


def test_the_log_is_read_in_pages_and_as_lines(service: Service, admin: httpx.Client, url: str) -> None:
    admin.put("/v1/jobs/run", json={})
    for _ in range(2):
        admin.post("/v1/jobs/run/kill", json={"reason": "enough"})
    whole = logged(service)
    assert len(whole) == 7
    found, cursor = [], None
    while True:
        page = admin.get("/v1/audit", params={"limit": 3, **({} if cursor is None else {"cursor": cursor})}).json()
        found += page["entries"]
        cursor = page["next"]
        if cursor is None:
            break
    assert [entry["number"] for entry in found] == [1, 2, 3, 4, 5, 6, 7]
    assert found[-1] == {
        **{name: getattr(whole[-1], name) for name in ("number", "at", "actor", "token", "ip", "action", "job")},
        **{name: getattr(whole[-1], name) for name in ("reason", "generation", "previous", "hash")},
        "detail": json.loads(whole[-1].detail),
    }
    only = admin.get("/v1/audit", params={"job": "run"}).json()["entries"]
    assert [(entry["number"], entry["action"]) for entry in only] == [
        (2, "create_token"),
        (5, "register"),
        (6, "kill"),
        (7, "kill"),
    ]
    lines = admin.get("/v1/audit.jsonl")
    assert lines.headers["content-type"].startswith("application/x-ndjson")
    assert list(map(link_of, lines.text.splitlines())) == whole
    with Client(url, admin.headers["authorization"].removeprefix("Bearer ")) as client:
        assert [entry.number for entry in client.audit()] == [1, 2, 3, 4, 5, 6, 7]
        assert list(map(link_of, client.audit_lines())) == whole


@pytest.fixture
def kept(db: Path, client: Client) -> Path:
    """A database with four rows in its log."""
    client.register("run")
    for number in range(3):
        client.kill("run", reason=f"nr. {number}")
    return db


Capture = pytest.CaptureFixture[str]


def test_the_command_line_checks_the_log_and_what_was_exported_of_it(
    kept: Path, tmp_path: Path, capsys: Capture
) -> None:
    done = trimtab_here(capsys, "audit", "verify", "--db", kept)
    assert (done.returncode, done.stdout.partition("\n")[0]) == (0, "4 rows, unbroken")
    head = done.stdout.partition("head: ")[2].split()[0]
    assert head.startswith("4:")
    for name in ("log.jsonl", "log.jsonl.gz"):
        file = tmp_path / name
        assert trimtab_here(capsys, "audit", "export", "--db", kept, "--out", file).returncode == 0
        found = json.loads(trimtab_here(capsys, "audit", "verify", "--file", file, "--noted", head, "--json").stdout)
        assert found == {"ok": True, "rows": 4, "head": head}
    assert trimtab_here(capsys, "audit", "export", "--db", kept).stdout == (tmp_path / "log.jsonl").read_text()


def test_the_command_line_names_the_row_that_was_tampered_with(kept: Path, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "log.jsonl"
    trimtab_here(capsys, "audit", "export", "--db", kept, "--out", file)
    head = json.loads(trimtab_here(capsys, "audit", "verify", "--db", kept, "--json").stdout)["head"]
    with sqlite3.connect(kept) as connection:
        connection.execute("DROP TRIGGER audit_no_update")
        connection.execute("DROP TRIGGER audit_no_delete")
        connection.execute("UPDATE audit SET reason = 'it was not me' WHERE number = 2")
    done = trimtab_here(capsys, "audit", "verify", "--db", kept)
    assert (done.returncode, done.stderr) == (1, "broken: row 2: its content is not what was hashed\n")
    found = trimtab_here(capsys, "audit", "verify", "--db", kept, "--json")
    assert json.loads(found.stdout) == {"ok": False, "row": 2, "problem": "row 2: its content is not what was hashed"}
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    assert trimtab_here(capsys, "audit", "verify", "--file", file).returncode == 0
    done = trimtab_here(capsys, "audit", "verify", "--file", file, "--noted", head)
    assert (done.returncode, done.stderr) == (1, "broken: row 4: it was noted, and the log ends with row 3\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--noted", "4"), "error: noted: '4' is no head; give one as `trimtab audit verify` prints it, NUMBER:HASH"),
        (("--file", "nope.jsonl"), "error: file: nope.jsonl cannot be read"),
        (("--db", "nope.db"), "error: db: there is no file nope.db"),
    ],
)
def test_mistakes_are_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, arguments: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = trimtab_here(capsys, "audit", "verify", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(told)
    assert done.stderr.count("\n") == 1


def test_what_is_no_export_is_told_with_its_line(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "log.jsonl").write_text('{"number": 1}\n')
    done = trimtab_here(capsys, "audit", "verify", "--file", tmp_path / "log.jsonl")
    assert done.returncode == 2
    assert "line 1: not a row of an audit log" in done.stderr


def test_a_token_of_the_trainer_reads_no_log(url: str, service: Service) -> None:
    with bearing(url, issued(service, Scope.INGEST)) as http:
        assert http.get("/v1/audit").status_code == 403
        assert http.get("/v1/audit.jsonl").status_code == 403
