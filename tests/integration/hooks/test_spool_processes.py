"""The spool in processes of their own: out of disk, out of descriptors, killed before their workers."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
from pathlib import Path

from trimtab.hooks.transport.spool import Spool, read_spool

FULL_DISK = """
import json, resource, signal, sys
from trimtab.hooks.records import StepSummary
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.transport.file import FileTransport

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))
emitter = Emitter(FileTransport(sys.argv[1]), job="run", attempt=1)
for step in range(20):
    emitter.end_step(step=step)
emitter.close()
print(json.dumps([emitter.transport.dropped, emitter.failures]))
"""


def test_a_disk_that_fills_up_loses_only_what_did_not_fit(tmp_path: Path) -> None:
    """The limit on file size stands for a full disk: it cuts the write that crosses it short, and fails those after."""
    done = subprocess.run([sys.executable, "-c", FULL_DISK, tmp_path], capture_output=True, text=True, check=True)
    dropped, failures = json.loads(done.stdout)
    kept = [summary.step for summary in read_spool(tmp_path)]
    assert kept == list(range(len(kept)))
    assert 0 < len(kept) < 20
    assert (dropped, failures) == (20 - len(kept), 0)


NO_DESCRIPTORS = """
import json, os, resource, sys
from pathlib import Path
from trimtab.hooks.transport.spool import Spool

spool = Spool(Path(sys.argv[1]), segment_bytes=200)
for step in range(10):
    assert spool.append(b"%d" % step * 100)
spool.pop()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
during = [spool.peek() is None, spool.unread.errno]
for descriptor in held:
    os.close(descriptor)
print(json.dumps([*during, spool.count(), spool.peek().decode()[0], spool.dropped]))
"""


def test_a_process_that_runs_out_of_descriptors_keeps_its_spool(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", NO_DESCRIPTORS, tmp_path], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [True, errno.EMFILE, 9, "1", 0]


KILLED_BEFORE_ITS_WORKER = """
import os, signal, sys
from pathlib import Path
from trimtab.hooks.transport.spool import Spool

spool = Spool(Path(sys.argv[1]))
for step in range(3):
    assert spool.append(b"%d" % step)
ready, forked = os.pipe()
if os.fork() == 0:
    assert (spool.append(b"worker"), spool.peek(), spool.claimed) == (False, None, False)
    os.write(forked, b"!")
    sys.stdin.read()
    os._exit(0)
os.close(forked)
assert os.read(ready, 1)
assert spool.append(b"3")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_that_outlives_its_trainer_does_not_keep_the_next_from_the_directory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_BEFORE_ITS_WORKER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as trainer:  # its end of input ends the worker
        assert trainer.wait(60) == -signal.SIGKILL
        again = Spool(tmp_path)
        assert (again.peek(), again.append(b"4"), again.count()) == (b"0", True, 5)
