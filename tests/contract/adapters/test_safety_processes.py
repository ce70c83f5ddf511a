"""What every adapter promises of its process: it ends when it is told to, delivers what it has, and does not grow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from loopback import LoopbackAgent
from rigs import RIGS

from trimtab.hooks.transport.spool import read_spool

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import signal
import sys
from rigs import RIGS

rig = RIGS[{name!r}]()
rig.attach({url!r})
for _ in range(5):
    rig.step()
print("ready", flush=True)
signal.pause()
"""


def started(name: str, url: str, home: Path) -> subprocess.Popen[str]:
    """A process that has made five steps and waits for a signal."""
    search = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM.format(name=name, url=url))],
        env=os.environ | {"PYTHONPATH": search, "HOME": str(home), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def ended(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    return process.returncode


def test_sigterm_delivers_what_is_pending_and_ends_the_process(name: str, tmp_path: Path) -> None:
    process = started(name, f"file:{tmp_path / 'recorded'}", tmp_path)
    assert ended(process) == -signal.SIGTERM
    steps = [summary.step for summary in read_spool(tmp_path / "recorded")]
    first = RIGS[name].first_step
    assert steps in ([*range(first, first + 5)], [*range(first, first + 4)])


def test_sigterm_ends_the_process_also_where_the_agent_does_not_answer(
    name: str, tmp_path: Path, agent: LoopbackAgent
) -> None:
    agent.answer = agent.hold
    process = started(name, agent.url, tmp_path)
    assert ended(process) == -signal.SIGTERM


GROWTH = """
import gc
import sys
from rigs import RIGS

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

rig = RIGS[{name!r}]()
rig.attach()
rig.step()
same = rig.batch()
rig.batch = lambda: same
rig.attachment.emitter.transport.keep = 10
for _ in range({warm}):
    rig.step()
gc.collect()
blocks, before = sys.getallocatedblocks(), resident()
for _ in range({steps}):
    rig.step()
gc.collect()
assert rig.attachment.attached and rig.attachment.failures == 0, rig.attachment.failures
print(sys.getallocatedblocks() - blocks, resident() - before)
"""
WARM = 300
"""Steps until everything is made that is made once."""


def grown(name: str, steps: int, home: Path) -> tuple[int, int]:
    """Blocks of Python's allocator, and bytes, that a process has more of after so many steps."""
    search = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    environment = os.environ | {"PYTHONPATH": search, "HOME": str(home), "OMP_NUM_THREADS": "1"}
    program = GROWTH.format(name=name, warm=WARM, steps=steps)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    blocks, resident = map(int, done.stdout.split())
    return blocks, resident


def test_a_step_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    blocks, _ = grown(name, 500, tmp_path)
    assert blocks < 500, f"{blocks / 500:g} objects a step"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nemo_rl", "areal"], ids=["driver and workers", "ranks"])
def test_a_hundred_thousand_steps_take_no_more_memory_than_a_thousand(kind: str, tmp_path: Path) -> None:
    _, resident = grown(kind, 100_000, tmp_path)
    assert resident < 4 * 2**20, f"{resident / 100_000:.0f} bytes a step"
