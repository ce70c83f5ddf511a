"""A real PostgreSQL of the tests' own: in a temporary folder, reached through a socket in it, gone at the end."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

ACCOUNT = "postgres"
"""Who runs the server where the tests run as root, which PostgreSQL refuses to be run by."""
SETTINGS = {"listen_addresses": "", "fsync": "off", "full_page_writes": "off", "max_connections": "100"}


class NoPostgresError(RuntimeError):
    """This machine has no PostgreSQL that the tests can run; the message says what is missing."""


class PostgresServer:
    """One server, which can be stopped and started again; each database that it is asked for is new and empty."""

    def __init__(self) -> None:
        self._programs = _programs()
        self._root = os.geteuid() == 0
        self._numbers = count(1)
        self.folder = Path(tempfile.mkdtemp(prefix="trimtab-pg-"))
        if self._root:
            shutil.chown(self.folder, ACCOUNT, ACCOUNT)
        self._run("initdb", "-D", str(self._data), "-U", ACCOUNT, "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        settings = {**SETTINGS, "unix_socket_directories": self.folder}
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self.start()

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self._run("pg_ctl", "-D", str(self._data), "-l", str(self.folder / "log"), "-w", "start")

    def stop(self) -> None:
        """Take it away from under whoever is connected, and lose nothing that was committed."""
        self._run("pg_ctl", "-D", str(self._data), "-m", "fast", "-w", "stop")

    def close(self) -> None:
        """Stop it for good and remove its folder."""
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")
        shutil.rmtree(self.folder)

    @contextmanager
    def database(self, like: str | None = None) -> Iterator[str]:
        """The URL of a new database, empty or a copy of another that nobody is connected to; it is dropped after the
        block, connections and all."""
        name = f"test_{next(self._numbers)}"
        template = "template0" if like is None else like.partition("?")[0].rpartition("/")[2]
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield f"postgresql+psycopg://{ACCOUNT}@/{name}?host={self.folder}"
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str) -> None:
        """Run one statement as the superuser, outside a transaction."""
        import psycopg  # here, since every environment of tests imports this module

        with psycopg.connect(host=str(self.folder), user=ACCOUNT, dbname="postgres", autocommit=True) as connection:
            connection.execute(statement)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _run(self, program: str, *arguments: str) -> None:
        account = {"user": ACCOUNT, "group": ACCOUNT, "extra_groups": []} if self._root else {}
        done = subprocess.run(
            [self._programs / program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a pipe would stay open for as long as the server runs
            stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            cwd=self.folder,
            timeout=60,
            check=False,
            **account,
        )
        log = self.folder / "log"
        told = (done.stderr or b"").decode() + (log.read_text() if log.exists() else "")
        assert done.returncode == 0, f"{program} failed: {told}"


def _programs() -> Path:
    """The folder of PostgreSQL's own programs, which Debian keeps off the PATH."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -int(path.parent.name))
    for folder in folders:
        if (folder / "initdb").exists():
            return folder
    raise NoPostgresError(
        "no initdb on the PATH or in /usr/lib/postgresql (Debian and Ubuntu: apt-get install postgresql)"
    )
