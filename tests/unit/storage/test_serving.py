"""The lock that keeps a second server off an SQLite file, between real processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from postgres import PostgresServer

from trimtab.storage.database import Database
from trimtab.storage.engine import StorageError
from trimtab.storage.serving import sole_server

HOLD = """
import sys
from trimtab.storage.database import Database
from trimtab.storage.serving import sole_server
with sole_server(Database(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_server_is_told_who_the_first_is(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    second = Database(f"sqlite:///{path}")
    with sole_server(Database(path)), pytest.raises(StorageError) as refused, sole_server(second):
        pass
    assert str(refused.value) == (
        f"db: {path} is served already by process {os.getpid()}; end that server, give another file, or give a "
        "PostgreSQL database, which several servers may share"
    )
    with sole_server(Database(path)):
        assert (tmp_path / "agent.db.lock").read_text() == f"{os.getpid()}\n"


def test_another_name_of_the_file_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "agent.db").touch()
    (tmp_path / "other.db").symlink_to(tmp_path / "agent.db")
    first, second = Database(tmp_path / "agent.db"), Database(tmp_path / "other.db")
    with sole_server(first), pytest.raises(StorageError, match="is served already"), sole_server(second):
        pass


def test_a_server_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StorageError, match=f"by process {other.pid};"), sole_server(Database(path)):
            pass
        other.kill()
    with sole_server(Database(path)):
        pass


def test_a_folder_that_takes_no_lock_is_told(tmp_path: Path) -> None:
    (tmp_path / "agent.db.lock").mkdir()
    with (
        pytest.raises(StorageError, match=r"agent\.db\.lock cannot be made"),
        sole_server(Database(tmp_path / "agent.db")),
    ):
        pass


def test_servers_share_a_postgresql_database(postgres: PostgresServer) -> None:
    with postgres.database() as url, sole_server(Database(url)), sole_server(Database(url)):
        pass
