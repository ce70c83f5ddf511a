"""What an armed process holds: a handler of SIGURG, which does nothing until a request for this very process lies in a
private folder. Then a thread of its own reads it, has `trimtab.hooks.armed.activation` do it, and writes the answer.

`trimtab arm` copies this file into an environment as `trimtab_armed.py`, so it stands alone: at a start of Python it
imports nothing that is not loaded already (`signal` would bring `enum` and `re`, a millisecond and more). SIGURG is
ignored by default, so one that goes to a process that is not armed does no harm. Linux only.

The handler runs in the main thread between two instructions, and only starts a thread there: `_thread` and not
`threading`, one of whose locks the main thread may be holding. It never raises, and hands on to a handler that was
there before. A handler that is installed later replaces it, and the process is then not armed.

A request is JSON: `nonce`, which the answer repeats; `site`, a folder with the package `trimtab`, where the process has
none of its own; and what `activation` takes. There is no `from __future__` here, which would be one more module.
"""

import os
import sys

NAME = "trimtab_armed"
"""Of the module in an armed process."""
WORK_SECONDS, REST_SECONDS = 0.0005, 0.0045
"""For which this thread works, and then leaves the processor and the interpreter's lock to training."""
LARGEST = 65536
"""Bytes of a request."""


def folders(uid: int) -> tuple[str, str]:
    """Where requests to processes of user `uid` lie: the first is used where `/run/user/UID` is there.

    They are the same for the command and for the process, whatever either has in its environment.
    """
    return f"/run/user/{uid}/trimtab-armed", f"/tmp/trimtab-armed-{uid}"


def started(stat: str) -> str:
    """When a process was started, in ticks since boot, from the text of its `/proc/PID/stat`."""
    return stat.rpartition(")")[2].split()[19]


def key(pid: int, start: str) -> str:
    """Name of the files of one process, which no later process with its number has."""
    return f"{pid}-{start}"


def unsafe(folder: str, uid: int) -> str | None:
    """Why `folder` is not one that nobody but user `uid` (and root) can write into or read, or None where it is."""
    return fault(folder, os.lstat(folder), uid)


def fault(folder: str, found: os.stat_result, uid: int) -> str | None:
    """`unsafe`, of what was found there."""
    if found.st_mode & 0o170000 != 0o040000:
        return f"{folder} is not a folder"
    if found.st_uid != uid:
        return f"{folder} belongs to user {found.st_uid}, not to {uid}"
    if found.st_mode & 0o077:
        return f"{folder} has mode {found.st_mode & 0o777:o}, so others can use it; it must be 700"
    return None


def serve() -> None:
    """Do what is asked of this process, if anything is, and write the answer; for a thread of its own."""
    import json

    found = _request()
    if found is None:
        return
    path, request = found + ".request", {}
    try:
        request = json.loads(_taken(path))
        answer = _paced(request)
    except FileNotFoundError as error:
        if error.filename == path:  # another signal's thread has it
            return
        answer = {"error": f"{type(error).__name__}: {error}"}
    except BaseException as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    _write(found + ".answer", json.dumps({**answer, "nonce": request.get("nonce")}))


def begin() -> None:
    """Start a thread that serves; to be called in any thread but the main one."""
    if "threading" in sys.modules:  # see below; who trains has it
        import threading

        threading.Thread(target=serve, name="trimtab-armed", daemon=True).start()


def _request() -> str | None:
    """Path of the request to this process, without its ending."""
    with open("/proc/self/stat") as file:
        name = key(os.getpid(), started(file.read()))
    for folder in folders(os.geteuid()):
        path = f"{folder}/{name}"
        if os.path.lexists(path + ".request"):
            return None if unsafe(folder, os.geteuid()) else path
    return None


def _taken(path: str) -> bytes:
    """The request, which is there no more, unless another user could have written it."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        os.unlink(path)
        if found.st_uid != os.geteuid() or found.st_mode & 0o177077 != 0o100000 or found.st_nlink != 1:
            raise PermissionError(f"{path}: refused: it must be a file of user {os.geteuid()} alone, of mode 600")
        return os.read(handle, LARGEST)
    finally:
        os.close(handle)


def _write(path: str, text: str) -> None:
    handle = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)
    os.rename(path + ".new", path)


def _paced(request: dict[str, str]) -> dict[str, object]:
    """What `trimtab` answers; it works, and imports what it needs, a little at a time.

    The profiler's hook is called whenever a function is, in this thread alone, so that work is cut anywhere. [measured:
    all at once, the imports of trimtab took some 100 ms, most of which training waited for]
    """
    from time import perf_counter, sleep

    until = perf_counter() + WORK_SECONDS

    def pace(frame: object, event: str, argument: object) -> None:  # noqa: ARG001 - the protocol's
        nonlocal until
        if perf_counter() > until:
            sleep(REST_SECONDS)
            until = perf_counter() + WORK_SECONDS

    site = request.get("site", "")
    if site:
        sys.path.append(site)
    sys.setprofile(pace)
    try:
        from trimtab.hooks.armed.activation import carry_out

        return carry_out(request)
    finally:
        sys.setprofile(None)
        if site in sys.path:
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(site)]  # the last, which is the one from above


def arm() -> None:
    """Handle SIGURG from now on, where a handler can be had: in the main thread of the main interpreter."""
    if os.environ.get("TRIMTAB_DISABLE", "") not in ("", "0") or not os.path.exists("/proc/self/stat"):
        return
    import _signal  # type: ignore[import-not-found]  # of which signal is a copy with enums
    import _thread

    before = _signal.getsignal(_signal.SIGURG)
    if getattr(before, "__qualname__", "") == "arm.<locals>.contacted":  # armed already
        return

    def contacted(number: int, frame: object) -> None:
        try:
            if _request() is not None:
                import threading  # noqa: F401 - first imported elsewhere, it takes that thread for the main one

                _thread.start_new_thread(begin, ())
        except Exception:  # never into training; the command that is not answered says so
            pass
        if callable(before):
            before(number, frame)

    try:
        _signal.signal(_signal.SIGURG, contacted)
        _signal.siginterrupt(_signal.SIGURG, False)
    except ValueError:  # another interpreter, or another thread
        return


if __name__ == NAME:
    arm()
