"""What workers of Ray are told, without Ray; `tests/e2e/test_examples.py` asks Ray itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from trimtab.hooks.ray_setup import BEFORE, HOOK, IMPORTS, with_trimtab


def test_the_jobs_own_environment_is_kept_and_its_hook_comes_first() -> None:
    own = {"worker_process_setup_hook": "job.setup", "env_vars": {"A": "1"}, "pip": ["x"]}
    made = with_trimtab(own, imports=("job.adapter",))
    assert made == {
        "worker_process_setup_hook": HOOK,
        "env_vars": {"A": "1", BEFORE: "job.setup", IMPORTS: "job.adapter"},
        "pip": ["x"],
    }
    assert own == {"worker_process_setup_hook": "job.setup", "env_vars": {"A": "1"}, "pip": ["x"]}
    assert with_trimtab(made, imports=("job.other", "job.adapter"))["env_vars"] == {
        "A": "1",
        BEFORE: "job.setup",
        IMPORTS: "job.adapter,job.other",
    }


def test_without_any() -> None:
    assert with_trimtab() == {"worker_process_setup_hook": HOOK, "env_vars": {BEFORE: "", IMPORTS: ""}}


def test_a_hook_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"worker_process_setup_hook: .* is a function; give its full name"):
        with_trimtab({"worker_process_setup_hook": print})


def worker(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    environment = os.environ | variables
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)


ASKED = """
import sys
from trimtab.hooks.ray_setup import setup
setup()
import _signal, json
print(json.dumps(["colorsys" in sys.modules, _signal.getsignal(_signal.SIGURG) != 0]))
"""


def test_what_cannot_be_imported_is_told_and_the_worker_starts() -> None:
    done = worker(ASKED, **{BEFORE: "gc.collect", IMPORTS: "nowhere.at.all,colorsys"})
    assert json.loads(done.stdout) == [True, True]
    assert done.stderr == (
        "trimtab: nowhere.at.all is not used in this worker: ModuleNotFoundError: No module named 'nowhere'\n"
    )


def test_the_jobs_own_hook_fails_as_it_would_have() -> None:
    done = worker(ASKED, **{BEFORE: "math.sqrt"})  # which lacks an argument
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("TypeError: math.sqrt() takes exactly one argument")


def test_with_the_switch_it_is_not_armed() -> None:
    assert json.loads(worker(ASKED, TRIMTAB_DISABLE="1").stdout) == [False, False]
