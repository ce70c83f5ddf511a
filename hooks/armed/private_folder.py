"""The folder in which requests to a user's processes lie, on the command's side, which may be root's.

That user may put anything in the place of the folder, or into it, at any moment. So it is opened once, and everything
is done by that descriptor: a path is a promise of the user's, a descriptor is not. Nothing in it is followed, waited
for, or removed that has another name than `trimtab` gives.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from trimtab.hooks.armed.process import ContactError, Process, process
from trimtab.hooks.armed.stub import LARGEST, fault, folders, key

POLL_SECONDS = 0.005
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OURS = re.compile(r"(\d+-\d+)\.(?:request|answer)(?:\.new)?", re.ASCII)


class PrivateFolder:
    """The folder of one user, held open."""

    def __init__(self, path: str, handle: int, uid: int) -> None:
        self.path, self._handle, self._uid = path, handle, uid

    @contextmanager
    def alone(self, timeout: float) -> Iterator[None]:
        """Keep other commands out, so that processes are asked one at a time."""
        until = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= until:
                    raise ContactError(f"another command has been at work in {self.path} for {timeout:g} s") from error
                time.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            fcntl.flock(self._handle, fcntl.LOCK_UN)

    def sweep(self, found: Process) -> None:
        """Remove what commands that were killed have left: this process's files, and those of processes that ended."""
        for name in os.listdir(self._handle):
            match = _OURS.fullmatch(name)
            if match is None:
                continue
            own = match[1] == key(found.inner_pid, found.start)
            if own or (found.pid == found.inner_pid and not there(match[1])):
                self.remove(name)

    def write(self, name: str, text: str) -> None:
        """A file that is new, of the user's alone. Raises `ContactError` where there can be none."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            handle = os.open(name, flags, 0o600, dir_fd=self._handle)
            try:
                if os.geteuid() != self._uid:
                    os.fchown(handle, self._uid, -1)
                os.write(handle, text.encode())
            finally:
                os.close(handle)
        except OSError as error:
            raise ContactError(f"{self.path}/{name} cannot be written ({error.strerror}); mend the folder") from error

    def has(self, name: str) -> bool:
        """Whether there is anything of that name."""
        try:
            os.stat(name, dir_fd=self._handle, follow_symlinks=False)
        except OSError:
            return False
        return True

    def read(self, name: str) -> bytes | None:
        """A file of the user's, its first bytes; None where there is nothing of that name.

        Raises:
            ContactError: there is something else.
        """
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            handle = os.open(name, flags, dir_fd=self._handle)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ContactError(f"{self.path}/{name} is no answer ({error.strerror}); nothing is known") from error
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != self._uid:
                raise ContactError(f"{self.path}/{name} is no answer: it must be a file of user {self._uid}")
            return os.read(handle, LARGEST)
        finally:
            os.close(handle)

    def remove(self, name: str) -> None:
        """Have nothing of that name, unless it is what cannot be removed."""
        with suppress(OSError):
            os.unlink(name, dir_fd=self._handle)


@contextmanager
def private_folder(found: Process) -> Iterator[PrivateFolder]:
    """The folder of the process's user, as that process sees the file system; made where there is none.

    Raises:
        ContactError: there is one that others can use, or none can be made.
    """
    root = f"/proc/{found.pid}/root"
    try:
        root = "" if os.path.samestat(os.stat(root), os.stat("/")) else root
    except OSError:
        root = ""  # what it sees cannot be told; most likely what we see
    for path in folders(found.uid):
        parent = _parent(root, os.path.dirname(path), found.uid)
        if parent is not None:
            break
    else:
        raise ContactError(f"no folder for requests can be made in {root or '/'}: it has no /tmp that others can use")
    try:
        handle = _opened(parent, os.path.basename(path), root + path, found.uid)
    finally:
        os.close(parent)
    try:
        if why := fault(root + path, os.fstat(handle), found.uid):
            raise ContactError(f"requests are not safe there: {why}; remove it and ask again")
        yield PrivateFolder(root + path, handle, found.uid)
    finally:
        os.close(handle)


def there(name: str) -> bool:
    """Whether the process lives that `key` gave this name."""
    pid, _, start = name.partition("-")
    try:
        return process(int(pid)).start == start
    except ValueError:
        return False


def _parent(root: str, path: str, uid: int) -> int | None:
    """The folder that the user may make folders in, opened; None where it is not one.

    In a root of its own the process says what a path means, and a link there would lead into ours.
    """
    flags = _FOLDER | os.O_NOFOLLOW if root else _FOLDER
    try:
        handle = os.open(root or "/", _FOLDER)
        for part in path.strip("/").split("/"):
            try:
                below = os.open(part, flags, dir_fd=handle)
            finally:
                os.close(handle)
            handle = below
    except OSError:
        return None
    status = os.fstat(handle)
    mine = os.geteuid() == uid and os.access(".", os.W_OK, dir_fd=handle)
    if mine or status.st_uid == uid or status.st_mode & stat.S_IWOTH:
        return handle
    os.close(handle)
    return None


def _opened(parent: int, name: str, path: str, uid: int) -> int:
    """The folder, which is made where there is none."""
    me = os.geteuid()
    try:
        made = True
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
        except FileExistsError:
            made = False
        handle = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
        try:
            if made and me != uid and os.fstat(handle).st_uid == me and not os.listdir(handle):
                os.fchown(handle, uid, -1)  # an empty one: it might have been put in the place of ours
        except OSError:
            os.close(handle)
            raise
    except NotADirectoryError as error:
        raise ContactError(f"requests are not safe there: {path} is not a folder; remove it and ask again") from error
    except OSError as error:
        raise ContactError(f"no folder for requests can be made: {path}: {error.strerror}") from error
    return handle
