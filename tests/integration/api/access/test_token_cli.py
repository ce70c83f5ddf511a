"""`trimtab token`: the first token at the database, the others through the service."""

import json
from pathlib import Path

import pytest
from access_runs import issued
from api_runs import serving, trimtab, trimtab_here

from trimtab.api.access.scopes import Scope
from trimtab.api.client import Client, ClientError
from trimtab.api.service import Service
from trimtab.storage.audit import Audit

NO_TOKEN = "token: one is needed; set TRIMTAB_TOKEN, or give --token"
Capture = pytest.CaptureFixture[str]


def test_the_first_token_is_made_at_the_database_and_opens_a_service_that_others_reach(db: Path) -> None:
    """In processes of their own, as at a terminal."""
    made = trimtab("token", "create", "root", "--scope", "admin", "--db", db)
    root = made.stdout.strip()
    assert root.startswith("ttb_")
    said = "root: admin for every job, until it is revoked. Keep it now: it is not shown again."
    assert made.stderr.splitlines()[0] == said
    with serving(db, "--host", "0.0.0.0") as (_, url):
        with Client(url.replace("0.0.0.0", "127.0.0.1"), root) as client:
            assert client.whoami().name == "root"
        refused = trimtab("status", "--url", url.replace("0.0.0.0", "127.0.0.1"), check=False)
        assert (refused.returncode, refused.stderr) == (2, f"error: {NO_TOKEN}\n")


def test_its_holder_makes_the_others_through_the_service(
    service: Service, url: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("TRIMTAB_URL", url)
    monkeypatch.setenv("TRIMTAB_TOKEN", issued(service, Scope.ADMIN))
    assert trimtab_here(capsys, "status").stdout == "no job has reported yet\n"
    made = trimtab_here(capsys, "token", "create", "trainer", "--scope", "ingest", "--job", "run", "--expires", "90d")
    assert made.stderr.startswith("trainer: ingest for run, until ")
    trainer = made.stdout.strip()
    id = trainer.split("_")[1]
    with Client(url, trainer) as client:
        assert client.whoami().scopes == [Scope.INGEST]
        with pytest.raises(ClientError, match="needs the scope read"):
            client.jobs()
    rotated = trimtab_here(capsys, "token", "rotate", id, "--overlap", "1h", "--reason", "as every month")
    assert "; the old secret is taken until " in rotated.stderr
    fresh = rotated.stdout.strip()
    with Client(url, fresh) as new, Client(url, trainer) as old:
        assert new.whoami() == old.whoami()
    listed = trimtab_here(capsys, "token", "list").stdout
    assert all(word in listed for word in (id, "trainer", "ingest", "run", "valid"))
    assert fresh.split("_")[2] not in listed
    revoked = trimtab_here(capsys, "token", "revoke", id, "--reason", "it is over")
    assert revoked.stdout == f"{id} (trainer) lets nobody in any more; running services know within seconds\n"
    unknown = trimtab_here(capsys, "token", "revoke", "no? #")
    assert (unknown.returncode, "there is no token 'no? #'" in unknown.stderr) == (2, True)
    with pytest.raises(ClientError, match="revoked or expired"), Client(url, fresh) as client:
        client.whoami()
    assert [(link.action, link.actor) for link in Audit(service.database).links()][1:] == [
        ("create_token", "the admin token"),
        ("rotate_token", "the admin token"),
        ("revoke_token", "the admin token"),
        ("token_refused", "stranger"),
    ]


def test_tokens_are_listed_replaced_and_revoked_at_the_database(db: Path, capsys: Capture) -> None:
    def done(*arguments: str) -> str:
        return trimtab_here(capsys, "token", *arguments, "--db", db).stdout

    id = done("create", "ada", "--scope", "control", "--scope", "read").split("_")[1]
    (one,) = json.loads(done("list", "--json"))["tokens"]
    assert (one["id"], one["name"], one["scopes"], one["standing"]) == (id, "ada", ["read", "control"], "valid")
    assert json.loads(done("rotate", id, "--overlap", "0m", "--json"))["about"]["old_secret_until"] is None
    assert json.loads(done("revoke", id, "--json"))["standing"] == "revoked"
    spent = trimtab_here(capsys, "token", "rotate", id, "--db", db)
    assert (spent.returncode, spent.stderr) == (2, f"error: token: {id} is revoked or has expired; create another\n")


def test_only_the_first_token_makes_a_database_and_says_which(tmp_path: Path, capsys: Capture) -> None:
    db = tmp_path / "typo.db"
    for arguments in (("list",), ("rotate", "nope"), ("revoke", "nope")):
        done = trimtab_here(capsys, "token", *arguments, "--db", db)
        assert (done.returncode, done.stderr) == (2, f"error: db: there is no file {db}\n")
    assert not db.exists()
    made = trimtab_here(capsys, "token", "create", "root", "--scope", "admin", "--db", db)
    assert made.stderr.endswith(f"{db} was not there, and is new; it is the one to serve\n")
    assert "new" not in trimtab_here(capsys, "token", "create", "root", "--scope", "admin", "--db", db).stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("create", "x", "--scope", "ingest"), "job: missing; a trainer's token is for one job, so name it"),
        (("create", "x", "--scope", "ingest", "--job", "a/b"), "job: 'a/b' must be"),
        (("create", "x", "--scope", "read", "--expires", "soon"), "expires: 'soon' is no span of time"),
        (("create", "", "--scope", "read"), "name: has 0 characters"),
        (("revoke", "nope"), "there is no token 'nope'"),
        (("rotate", "nope"), "there is no token 'nope'"),
    ],
)
def test_mistakes_are_told_in_one_line(db: Path, capsys: Capture, arguments: tuple[str, ...], told: str) -> None:
    Service.open(db).close()
    done = trimtab_here(capsys, "token", *arguments, "--db", db)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {told}")
    assert done.stderr.count("\n") == 1


def test_a_host_that_others_reach_is_refused_with_the_way_out(db: Path, capsys: Capture) -> None:
    done = trimtab_here(capsys, "serve", "--db", db, "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 2
    assert "trimtab token create NAME --scope admin --db" in done.stderr


@pytest.mark.parametrize("option", ["--ingest-limit", "--control-limit"])
def test_a_limit_that_is_none_is_told(db: Path, capsys: Capture, option: str) -> None:
    done = trimtab_here(capsys, "serve", "--db", db, option, "many")
    assert (done.returncode, done.stderr.startswith(f"error: {option[2:]}: 'many' is no limit")) == (2, True)
