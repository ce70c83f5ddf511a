"""A real PostgreSQL of the tests' own: in a temporary folder, reached through a socket in it, gone at the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

ACCOUNT = "postgres"
"""Who runs the server where the tests run as root, which PostgreSQL refuses to be run by."""
INITDB = ("-U", ACCOUNT, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
SETTINGS = {"listen_addresses": "", "fsync": "off", "full_page_writes": "off", "max_connections": "100"}


class NoPostgresError(RuntimeError):
    """This machine has no PostgreSQL that the tests can run; the message says what is missing."""


class PostgresServer:
    """One server, which can be stopped and started again; each database that it is asked for is new and empty."""

    def __init__(self) -> None:
        self._programs = _programs()
        self._numbers = count(1)
        self.folder = Path(tempfile.mkdtemp(prefix="trimtab-pg-"))
        if os.geteuid() == 0:
            shutil.chown(self.folder, ACCOUNT, ACCOUNT)
        made = subprocess.run(
            [self._programs / "initdb", "-D", self._data, *INITDB],
            capture_output=True,
            text=True,
            cwd=self.folder,
            check=False,
            **self._account,
        )
        assert made.returncode == 0, made.stderr
        settings = {**SETTINGS, "unix_socket_directories": self.folder}
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self.start()

    def start(self) -> None:
        """Start it, and wait until it takes connections. It ends with the thread that calls this, even a killed one."""
        tied = ["setpriv", "--pdeathsig", "QUIT"] if shutil.which("setpriv") else []
        command = [*tied, str(self._programs / "postgres"), "-D", str(self._data)]
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                command,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self._account,
            )
        give_up = time.monotonic() + 60
        while not self._takes_connections():
            told = (self.folder / "log").read_text()
            assert self._process.poll() is None, told
            assert time.monotonic() < give_up, told
            time.sleep(0.02)

    def stop(self) -> None:
        """Take it away from under whoever is connected, and lose nothing that was committed."""
        self._end(signal.SIGINT)

    def close(self) -> None:
        """Stop it for good and remove its folder."""
        self._end(signal.SIGQUIT)
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
        with self._connect() as connection:
            connection.execute(statement)

    def _connect(self) -> psycopg.Connection:
        import psycopg  # here, since every environment of tests imports this module

        return psycopg.connect(host=str(self.folder), user=ACCOUNT, dbname="postgres", autocommit=True)

    def _takes_connections(self) -> bool:
        import psycopg

        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _end(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        self._process.wait(60)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _account(self) -> dict[str, Any]:
        return {"user": ACCOUNT, "group": ACCOUNT, "extra_groups": []} if os.geteuid() == 0 else {}


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
