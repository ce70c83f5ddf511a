"""What an armed process holds, and what it does not take."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from armed_loop import Loop
from armed_runs import LOOP, Environment, training

from trimtab.hooks.armed import stub
from trimtab.hooks.armed.contact import ask
from trimtab.hooks.armed.process import ContactError, ProcessError, owned, process

ATTACH = {
    "do": "attach",
    "url": "memory:",
    "job": "j",
    "class": "__main__.Loop",
    "adapter": "__main__.attach",
    "wait": 5,
}
HANDLES = "import _signal; print(_signal.getsignal(_signal.SIGURG) != _signal.SIG_DFL)"


def test_a_start_imports_the_stub_and_nothing_else(armed: Environment, plain: Environment) -> None:
    program = "import sys; print(' '.join(sorted(sys.modules)))"
    before, after = (set(each.code(program).split()) for each in (plain, armed))
    assert after - before == {stub.NAME}


def test_an_idle_process_has_nothing_open(armed: Environment, plain: Environment) -> None:
    program = "import os; print(*(len(os.listdir(f'/proc/self/{kind}')) for kind in ('fd', 'task')), os.listdir('.'))"
    assert armed.code(program) == plain.code(program)


def test_the_switch_is_off_for_one_process(armed: Environment, tmp_path: Path) -> None:
    assert armed.code(HANDLES) == "True\n"
    assert armed.code(HANDLES, TRIMTAB_DISABLE="0") == "True\n"
    assert armed.code(HANDLES, TRIMTAB_DISABLE="1") == "False\n"
    with training(armed, tmp_path, TRIMTAB_DISABLE="1") as job, pytest.raises(ContactError, match="is not armed"):
        ask(process(job.pid), ATTACH, timeout=30)


def test_the_switch_set_later_refuses(armed: Environment, tmp_path: Path) -> None:
    program = (
        f"import os, runpy; os.environ['TRIMTAB_DISABLE'] = '1'; runpy.run_path({str(LOOP)!r}, run_name='__main__')"
    )
    with training(armed, tmp_path, program) as job, pytest.raises(ContactError, match=r"TRIMTAB_DISABLE .* switches"):
        ask(process(job.pid), ATTACH, timeout=30)


def test_a_signal_without_a_request_does_nothing(armed: Environment, plain: Environment, tmp_path: Path) -> None:
    for environment, folder in ((armed, tmp_path / "armed"), (plain, tmp_path / "plain")):
        folder.mkdir()
        with training(environment, folder) as job:
            for _ in range(20):
                os.kill(job.pid, signal.SIGURG)
                time.sleep(0.001)
            end = job.finished()
        assert (end["digest"], end["threads"]) == (Loop().trained(end["steps"]).digest(), ["MainThread"])


def test_a_handler_that_was_there_is_called_too(armed: Environment, tmp_path: Path) -> None:
    program = f"""
import importlib, runpy, signal, sys
heard = []
signal.signal(signal.SIGURG, lambda number, frame: heard.append(number))
sys.modules.pop({stub.NAME!r})
importlib.import_module({stub.NAME!r})
del sys.argv[0]
runpy.run_path({str(LOOP)!r}, run_name="__main__")
""".replace("del sys.argv[0]\n", "")
    with training(armed, tmp_path, program + "import json; print(json.dumps(heard))") as job:
        assert ask(process(job.pid), ATTACH, timeout=30)["job"] == "j"
        assert job.finished() == [signal.SIGURG]


def test_a_handler_that_is_installed_later_has_the_signal(armed: Environment, tmp_path: Path) -> None:
    program = f"""
import json, runpy, signal
heard = []
signal.signal(signal.SIGURG, lambda number, frame: heard.append(number))
runpy.run_path({str(LOOP)!r}, run_name="__main__")
print(json.dumps(heard))
"""
    with training(armed, tmp_path, program) as job:
        with pytest.raises(
            ContactError, match="put a handler of its own in the place of trimtab's; nothing was changed"
        ):
            ask(process(job.pid), ATTACH, timeout=0.5)
        assert job.finished() == [signal.SIGURG]


def test_a_call_that_does_not_return_is_told_and_nothing_comes_of_it_later(armed: Environment, tmp_path: Path) -> None:
    program = f"""
import runpy, sys, pathlib
print("training", flush=True)
if not pathlib.Path(sys.argv[1]).exists():
    sum(range(200_000_000))
runpy.run_path({str(LOOP)!r}, run_name="__main__")
"""
    with training(armed, tmp_path, program) as job:
        with pytest.raises(ContactError, match=r"has not looked at the request in 0\.2 s"):
            ask(process(job.pid), ATTACH, timeout=0.2)
        end = job.finished()
    assert (end["own"], end["threads"]) == (sorted(vars(Loop())), ["MainThread"])


def test_a_request_that_others_could_have_written_is_refused(armed: Environment, tmp_path: Path) -> None:
    def tampered(found: object) -> None:
        assert found is ours
        for folder in stub.folders(ours.uid):
            for path in Path(folder).glob(f"{stub.key(ours.pid, ours.start)}.request"):
                path.chmod(0o622)
        os.kill(ours.pid, signal.SIGURG)

    with training(armed, tmp_path) as job:
        ours = process(job.pid)
        with pytest.raises(ContactError, match=r"PermissionError: .*: refused: it must be a file of user"):
            ask(ours, ATTACH, timeout=30, waking=tampered)
        end = job.finished()
    assert end["digest"] == Loop().trained(end["steps"]).digest()


def test_a_request_for_an_earlier_process_of_that_number_is_not_looked_at(armed: Environment, tmp_path: Path) -> None:
    def renamed(found: object) -> None:
        assert found is ours
        for folder in stub.folders(ours.uid):
            for path in Path(folder).glob(f"{stub.key(ours.pid, ours.start)}.request"):
                path.rename(path.with_name(f"{stub.key(ours.pid, str(int(ours.start) - 1))}.request"))
        os.kill(ours.pid, signal.SIGURG)

    with training(armed, tmp_path) as job:
        ours = process(job.pid)
        with pytest.raises(ContactError, match=r"not answered in 0\.5 s"):
            ask(ours, ATTACH, timeout=0.5, waking=renamed)
        assert ask(ours, ATTACH, timeout=30)["job"] == "j"
    folders = [Path(folder) for folder in stub.folders(ours.uid)]
    assert [path for folder in folders for path in folder.glob(f"{ours.pid}-*")] == []  # swept by the second


def test_a_folder_that_others_can_use_is_refused(tmp_path: Path) -> None:
    uid = os.geteuid()
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    assert stub.unsafe(str(private), uid) is None
    assert stub.unsafe(str(private), uid + 1) == f"{private} belongs to user {uid}, not to {uid + 1}"
    private.chmod(0o720)
    assert stub.unsafe(str(private), uid) == f"{private} has mode 720, so others can use it; it must be 700"
    link = tmp_path / "link"
    link.symlink_to(private)
    assert stub.unsafe(str(link), uid) == f"{link} is not a folder"


def test_another_users_process_is_refused() -> None:
    theirs = process(os.getpid() if os.geteuid() == 0 else 1)
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(
            ProcessError, match=f"process {theirs.pid} belongs to user root, and only that user and root"
        ):
            owned(theirs)
    finally:
        os.seteuid(me)


def test_a_process_that_has_ended_is_told(armed: Environment, tmp_path: Path) -> None:
    with training(armed, tmp_path) as job:
        found = process(job.pid)
        job.finished()
    with pytest.raises(ProcessError, match=f"process {found.pid} has ended|there is no process {found.pid}"):
        ask(found, ATTACH, timeout=30)


def test_a_process_that_ends_by_the_request_is_told(armed: Environment, tmp_path: Path) -> None:
    def killed(found: object) -> None:
        assert found is ours
        os.kill(ours.pid, signal.SIGKILL)

    with training(armed, tmp_path) as job:
        ours = process(job.pid)
        with pytest.raises(ContactError, match=f"process {ours.pid} ended before it answered"):
            ask(ours, ATTACH, timeout=30, waking=killed)


CHILDREN = """
import json, multiprocessing, os, runpy, subprocess, sys
def handles():
    import _signal
    return _signal.getsignal(_signal.SIGURG) != _signal.SIG_DFL
if __name__ == "__main__":
    found = {}
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), 23)
        os.write(write, b"well")
        os._exit(0)
    os.waitpid(child, 0)
    found["forked"] = os.read(read, 9).decode()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found["spawned"] = pool.apply(handles)
    found["shell"] = subprocess.run(["sh", "-c", "kill -URG $$; echo well"], capture_output=True, text=True).stdout
    import _xxsubinterpreters as interpreters
    inner = interpreters.create()
    interpreters.run_string(inner, "import sys; assert 'trimtab_armed' in sys.modules or True")
    interpreters.destroy(inner)
    found["here"] = handles()
    print(json.dumps(found))
"""


def test_children_of_all_kinds_are_well(armed: Environment, tmp_path: Path) -> None:
    program = tmp_path / "children.py"
    program.write_text(CHILDREN)
    done = subprocess.run([armed.python, program], capture_output=True, text=True, timeout=60, env=armed.variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"forked": "well", "spawned": True, "shell": "well\n", "here": True}


LOADER = """
import json, os, runpy, sys
import torch
from torch.utils.data import DataLoader
loader = DataLoader(list(range(64)), batch_size=4, num_workers=1, persistent_workers=True)
total = sum(int(batch.sum()) for batch in loader)
sys.argv[0] = {loop!r}
runpy.run_path({loop!r}, run_name="__main__")
total += sum(int(batch.sum()) for batch in loader)
print(json.dumps(total))
"""


def test_workers_that_load_data_are_neither_contacted_nor_hurt(armed: Environment, tmp_path: Path) -> None:
    with training(armed, tmp_path, LOADER.format(loop=str(LOOP))) as job:
        found = armed.answer(
            *("attach", "--job", str(tmp_path), "--url", "memory:", "--job-name", "late"),
            *("--trainer", "__main__.Loop", "--adapter", "__main__.attach"),
        )
        assert found["pid"] == job.pid
        assert job.finished() == 2 * sum(range(64))
