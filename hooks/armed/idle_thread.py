"""Injects a library into a thread that waits: the program of a process of its own, which needs hypno.

A library is loaded, and its code run, in the middle of whatever the thread was doing. In the middle of an allocation
that breaks the heap, in the middle of arithmetic it may change vector registers, and in the middle of Python's own code
it runs Python within it. So only a thread that waits in a system call is taken, another one than the main thread where
there is one, and it is looked at again once it is held. [measured: by hypno's own choice, the
main thread wherever it is, 3 of 158 injections hung a loop of PyTorch for good; by a thread that waits, none of 240]
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

WAITS = {
    "x86_64": {0, 7, 23, 35, 43, 45, 47, 61, 128, 202, 230, 232, 247, 270, 271, 281, 288},
    "aarch64": {22, 63, 72, 73, 95, 98, 101, 115, 137, 202, 207, 212, 242, 260},
}
"""Numbers of the system calls in which a thread waits for others, for time or for input."""
FUTEX = {"x86_64": 202, "aarch64": 98}
WAIT_BITSET = 9
"""Of futex: what locks of Python, conditions and semaphores use, and the lock of an allocator does not."""
LOOK_SECONDS = 0.002
PATIENCE = 5.0
"""Seconds to look for a thread that waits."""
NONE_WAITS = 3
"""Exit status where none did."""


def waits(pid: int, thread: int) -> bool:
    """Whether a thread waits in a system call, now."""
    machine = os.uname().machine
    try:
        words = Path(f"/proc/{pid}/task/{thread}/syscall").read_text().split()
    except OSError:
        return False
    if words[0] == "running" or int(words[0]) not in WAITS.get(machine, ()):
        return False
    return int(words[0]) != FUTEX[machine] or int(words[2], 16) & 0x7F == WAIT_BITSET


def threads(pid: int) -> list[int]:
    """The threads of a process, the main one last."""
    return sorted((int(each) for each in os.listdir(f"/proc/{pid}/task")), key=lambda each: (each == pid, each))


def injected(pid: int, library: str, *, patience: float = PATIENCE) -> bool:
    """Have a thread of process `pid` that waits load `library` and forget it again; False where none waited."""
    from pyinjector import attach

    until = time.monotonic() + patience
    while time.monotonic() < until:
        for thread in threads(pid):
            if not waits(pid, thread):
                continue
            with attach(thread) as injector:
                if waits(pid, thread):  # it may have gone on before it was held
                    injector.uninject(injector.inject(os.fsencode(library)))
                    return True
        time.sleep(LOOK_SECONDS)
    return False


def main() -> None:
    """Inject the code of the second argument into the process of the first."""
    import hypno.api

    pid, code = int(sys.argv[1]), sys.argv[2]
    done: list[bool] = []
    # hypno makes the library; which thread loads it is left to us
    hypno.api.inject = lambda pid, library, uninject: done.append(injected(pid, library))  # noqa: ARG005 - its own call
    hypno.inject_py(pid, code)
    if done != [True]:
        sys.exit(NONE_WAITS)


if __name__ == "__main__":
    main()
