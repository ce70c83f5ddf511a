"""A disk that is full or turns read-only under an SQLite file: trainers keep their summaries and deliver them after."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from agent_runs import Plant
from api_runs import trimtab
from long_runs import give, opened

from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.hooks.layout import Report
from trimtab.hooks.records import StepSummary
from trimtab.hooks.transport.backoff import Backoff
from trimtab.hooks.transport.http import HttpTransport

STEPS = 60
FAST = Backoff(first=0.05, cap=0.2)


@pytest.fixture(scope="module")
def summaries() -> list[StepSummary]:
    plant = Plant(seed=1, noisy_from=10)
    return [plant.advance() for _ in range(STEPS)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a file system of one's own cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def eventually(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up, "it never came to hold"
        time.sleep(0.02)


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """As if the disk were full: no file of this process grows beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def refuses(http: httpx.Client) -> bool:
    """Whether a change that a person asks for is refused for now."""
    answer = http.put("/v1/jobs/new", json={})
    if answer.status_code == 503:
        assert "the database does not answer" in answer.json()["errors"][0]["message"]
    return answer.status_code == 503


def delivered_after(
    db: Path, spool: Path, summaries: list[StepSummary], trouble: Callable[[Service], object]
) -> tuple[Service, HttpTransport]:
    """A run a third of which meets trouble, a context manager made of the service."""
    service = opened(db)
    with running(service) as url, httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
        transport = HttpTransport(url, spool=spool, backoff=FAST)
        for summary in summaries[:20]:
            transport.send(Report(summary))
        eventually(lambda: [job.rows for job in service.store.jobs()] == [20])
        with trouble(service):  # type: ignore[attr-defined]
            for summary in summaries[20:40]:
                transport.send(Report(summary))
            eventually(lambda: refuses(http))
            assert http.get("/livez").status_code == 200
            stored = service.store.job("run").rows
            assert 20 <= stored < 40
            assert http.get("/v1/jobs/run/controls").status_code == 200, "what is there can be read"
        for summary in summaries[40:]:
            transport.send(Report(summary))
        eventually(lambda: service.store.job("run").rows == STEPS)
        transport.close(5)
    return service, transport


def check(service: Service, transport: HttpTransport, summaries: list[StepSummary], folder: Path) -> None:
    """Nothing was lost or doubled, and everything was judged as it would have been."""
    assert (transport.dropped, transport.rejected) == (0, 0)
    assert [entry.step for entry in service.store.recorded("run").entries] == list(range(STEPS))
    undisturbed = opened(folder / "undisturbed.db")
    give(undisturbed, summaries)
    assert service.state("run") == undisturbed.state("run")
    with service.database.read() as connection:
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
    undisturbed.close()
    service.close()


def test_no_file_may_grow(summaries: list[StepSummary], tmp_path: Path) -> None:
    db = tmp_path / "agent.db"

    def full(service: Service) -> object:
        del service
        return no_file_beyond(db.with_name("agent.db-wal").stat().st_size + 20_000)

    check(*delivered_after(db, tmp_path / "spool", summaries, full), summaries, tmp_path)


def test_the_disk_is_full(summaries: list[StepSummary], tmp_path: Path, disk: Path) -> None:
    @contextmanager
    def full(service: Service) -> Iterator[None]:
        del service
        ballast = os.open(disk / "ballast", os.O_CREAT | os.O_WRONLY)
        with contextlib.suppress(OSError):  # no space left
            while True:
                os.write(ballast, b"x" * 4096)
        os.close(ballast)
        assert shutil.disk_usage(disk).free == 0
        yield
        (disk / "ballast").unlink()

    check(*delivered_after(disk / "agent.db", tmp_path / "spool", summaries, full), summaries, tmp_path)


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", disk], check=True)


def test_a_server_on_a_read_only_disk_is_told_at_the_start(disk: Path) -> None:
    opened(disk / "agent.db").close()
    remount(disk, "ro")
    refused = trimtab("serve", "--db", disk / "agent.db", "--port", "0", check=False)
    assert (refused.returncode, refused.stderr.count("error: ")) == (2, 1)
    assert "Read-only file system" in refused.stderr
