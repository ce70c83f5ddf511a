"""The folder of requests of a user who means harm: it is swapped, filled with links and pipes, and locked."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trimtab.api.cli.attach import detach
from trimtab.api.cli.errors import UsageError
from trimtab.hooks.armed.contact import ask, wake
from trimtab.hooks.armed.private_folder import PrivateFolder
from trimtab.hooks.armed.process import ContactError, Process, ProcessError, process
from trimtab.hooks.armed.stub import folders, key

STRANGER = 54321
"""A user that nobody is."""
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root contacts the processes of others")


@pytest.fixture
def own() -> Process:
    return process(os.getpid())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "private"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def folder(path: Path) -> Iterator[PrivateFolder]:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    yield PrivateFolder(str(path), handle, os.geteuid())
    os.close(handle)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    victim = tmp_path / "victim"
    victim.mkdir()
    for name in ("passwd", "cron.daily.sh", "1-1.request"):
        (victim / name).write_text("not to be touched")
    return victim


def test_what_is_put_in_its_place_is_not_followed(
    folder: PrivateFolder, path: Path, victim: Path, own: Process
) -> None:
    before = sorted(os.listdir(victim))
    path.rename(path.with_name("aside"))
    path.symlink_to(victim)
    with folder.alone(1):
        folder.sweep(own)
        folder.write("2-2.request", "{}")
        folder.remove("1-1.request")
    assert sorted(os.listdir(victim)) == before
    assert os.listdir(path.with_name("aside")) == ["2-2.request"]


def test_only_files_of_requests_and_answers_are_swept(folder: PrivateFolder, path: Path, own: Process) -> None:
    name = key(own.pid, own.start)
    kept = ["passwd", "1-1", "1-1.conf", "1-1.request.bak", "a-1.request", "\N{SUPERSCRIPT TWO}-1.request"]
    living = f"{os.getppid()}-{process(os.getppid()).start}.request"
    swept = [f"{name}.request", f"{name}.answer", f"{name}.answer.new", "1-1.request", "999999999-1.answer"]
    for each in (*kept, living, *swept):
        (path / each).touch()
    (path / "3-3.request").mkdir()  # which cannot be unlinked, and stops nothing
    folder.sweep(own)
    assert sorted(os.listdir(path)) == sorted([*kept, living, "3-3.request"])


def test_an_answer_is_a_file_of_the_users_own(folder: PrivateFolder, path: Path, victim: Path) -> None:
    (path / "link").symlink_to(victim / "passwd")
    os.mkfifo(path / "pipe")
    (path / "folder").mkdir()
    (path / "file").write_text("answer")
    for name in ("link", "pipe", "folder"):
        with pytest.raises(ContactError, match=f"/{name} is no answer"):
            folder.read(name)
    assert (folder.read("file"), folder.read("none")) == (b"answer", None)
    if os.geteuid() == 0:
        os.chown(path / "file", STRANGER, -1)
        with pytest.raises(ContactError, match="it must be a file of user 0"):
            folder.read("file")


def test_a_request_replaces_nothing(folder: PrivateFolder, path: Path, victim: Path) -> None:
    (path / "1-1.request").symlink_to(victim / "passwd")
    with pytest.raises(ContactError, match=r"1-1\.request cannot be written \(File exists\); mend the folder"):
        folder.write("1-1.request", "{}")
    assert (victim / "passwd").read_text() == "not to be touched"


@pytest.mark.parametrize("answer", ["[]", "no JSON", '{"pid": 1}', "[" * 60_000])
def test_an_answer_without_its_number_is_none(own: Process, answer: str) -> None:
    def answering(found: Process) -> None:
        for each in folders(found.uid):
            name = Path(each) / key(found.pid, found.start)
            if name.with_suffix(".request").exists():
                name.with_suffix(".answer").write_text(answer)

    with pytest.raises(ContactError, match=f"process {own.pid} gives an answer that is none; whether it did"):
        ask(own, {"do": "detach"}, timeout=30, waking=answering)


def test_an_error_is_one_line(own: Process) -> None:
    def answering(found: Process) -> None:
        for each in folders(found.uid):
            name = Path(each) / key(found.pid, found.start)
            if name.with_suffix(".request").exists():
                name.with_suffix(".answer").write_text(json.dumps({"nonce": None, "error": "one\n  two"}))

    with pytest.raises(ContactError, match=f"^process {own.pid} answers: one two$"):
        ask(own, {"do": "detach"}, timeout=30, waking=answering)


def test_an_answer_that_says_too_little_is_one_line_too(own: Process) -> None:
    def answering(*_: object) -> None:
        for each in folders(own.uid):
            name = Path(each) / key(own.pid, own.start)
            if name.with_suffix(".request").exists():
                name.with_suffix(".answer").write_text('{"nonce": null}')

    before = signal.signal(signal.SIGURG, answering)
    try:
        with pytest.raises(
            UsageError, match=r"^the process has done it and answers without 'pid': it has another trimtab"
        ):
            detach(pid=own.pid)
    finally:
        signal.signal(signal.SIGURG, before)


def test_the_number_of_a_thread_names_its_process() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        with pytest.raises(ProcessError, match=f"^pid: {thread.native_id} is a thread of process {os.getpid()}; give "):
            process(thread.native_id or 0)
    finally:
        over.set()
        thread.join()


def test_what_cannot_be_signalled_is_told() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    before = signal.signal(signal.SIGURG, lambda *_: None)
    try:
        found = process(os.getpid())
        # As if what was a process had become a thread's number; the kernel says EINVAL or ENOENT.
        of_thread = Process(**{name: getattr(found, name) for name in Process.__slots__} | {"pid": thread.native_id})
        with pytest.raises(ContactError, match=rf"^process {thread.native_id} cannot be signalled \(.*\); run this as"):
            wake(of_thread)
    finally:
        signal.signal(signal.SIGURG, before)
        over.set()
        thread.join()


@contextmanager
def stranger() -> Iterator[Process]:
    """A process of `STRANGER`, which does nothing."""
    with subprocess.Popen(["/bin/sleep", "600"], user=STRANGER, group=STRANGER, cwd="/") as started:
        try:
            while (found := process(started.pid)).uid != STRANGER or "sleep" not in found.command:
                time.sleep(0.01)
            yield found
        finally:
            started.kill()


@pytest.fixture
def theirs() -> Iterator[Path]:
    path = Path(folders(STRANGER)[1])

    def cleared() -> None:
        path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(f"{path}.old", ignore_errors=True)

    cleared()
    yield path
    cleared()


@ROOT_ONLY
def test_root_is_not_led_astray_while_it_waits(theirs: Path, victim: Path) -> None:
    before = sorted(os.listdir(victim))
    theirs.mkdir(mode=0o700)
    os.chown(theirs, STRANGER, -1)
    held = os.open(theirs, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with stranger() as found:
        told: list[str] = []

        def asked() -> None:
            try:
                ask(found, {"do": "detach"}, timeout=3, waking=lambda _: None)
            except ContactError as error:
                told.append(str(error))

        asking = threading.Thread(target=asked)
        asking.start()
        while not waits_for(theirs):
            time.sleep(0.01)
        theirs.rename(f"{theirs}.old")
        theirs.symlink_to(victim)
        os.close(held)
        asking.join()
    assert len(told) == 1
    assert "has not looked at the request in 3 s" in told[0]
    assert sorted(os.listdir(victim)) == before
    assert os.listdir(f"{theirs}.old") == []


def waits_for(path: Path) -> bool:
    """Whether this process has the folder open twice: the lock's holder, and who waits for it."""
    handles = Path("/proc/self/fd")
    found = 0
    for each in handles.iterdir():
        try:
            found += os.readlink(each) == str(path)
        except OSError:
            continue
    return found == 2


@ROOT_ONLY
def test_root_makes_the_folder_of_a_user_and_follows_no_link_there(theirs: Path, victim: Path) -> None:
    with stranger() as found:
        seen: list[tuple[int, int, int, int]] = []

        def look(_: Process) -> None:
            (request,) = theirs.iterdir()
            status, inner = theirs.stat(), request.stat()
            seen.append((status.st_uid, status.st_mode & 0o777, inner.st_uid, inner.st_mode & 0o777))

        with pytest.raises(ContactError, match="has not looked at the request"):
            ask(found, {"do": "detach"}, timeout=0.2, waking=look)
        assert seen == [(STRANGER, 0o700, STRANGER, 0o600)]
        theirs.rmdir()
        theirs.symlink_to(victim)
        with pytest.raises(ContactError, match="is not a folder; remove it and ask again"):
            ask(found, {"do": "detach"}, timeout=0.2, waking=look)
    assert victim.stat().st_uid == 0


@ROOT_ONLY
def test_in_a_root_of_its_own_a_link_leads_root_nowhere(tmp_path: Path, victim: Path) -> None:
    inside = tmp_path / "root"
    inside.mkdir(mode=0o755)
    (inside / "tmp").symlink_to(victim)  # which is another folder from inside, and ours from outside
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.chroot(inside)
        os.chdir("/")
        os.setgid(STRANGER)
        os.setuid(STRANGER)
        os.write(write, b"ready")
        signal.pause()
        os._exit(0)
    try:
        assert os.read(read, 5) == b"ready"
        before = sorted(os.listdir(victim))
        with pytest.raises(ContactError, match=r"no folder for requests can be made in /proc/\d+/root: it has no /tmp"):
            ask(process(child), {"do": "detach"}, timeout=1, waking=lambda _: None)
        assert sorted(os.listdir(victim)) == before
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)
