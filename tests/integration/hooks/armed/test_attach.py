"""A job that runs already is attached to, steered and let go, and never stops."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from armed_loop import Loop
from armed_runs import TRAINER, Environment, training

import trimtab
from trimtab.api.client import Client
from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.hooks.armed.contact import ask
from trimtab.hooks.armed.process import ContactError, process
from trimtab.hooks.armed.stub import folders, key
from trimtab.storage.values import EntryKind

OWN = sorted(vars(Loop()))
PATIENCE = 0.02
"""Seconds between two questions."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service.open(tmp_path / "agent.db")
    yield service
    service.close()


def files_about(pid: int) -> list[str]:
    """Requests and answers that lie about."""
    name = key(pid, process(pid).start)
    found = process(pid)
    return [str(path) for folder in folders(found.uid) for path in Path(folder).glob(f"{name}*")]


def test_attached_steered_and_detached_while_it_trains(armed: Environment, tmp_path: Path, service: Service) -> None:
    with running(service) as url, training(armed, tmp_path) as job, Client(url) as client:
        answer = armed.answer("attach", "--pid", str(job.pid), "--url", url, "--job-name", "late", *TRAINER)
        named = {"framework": "__main__.Loop", "trainer": "__main__.Loop", "url": url, "job": "late"}
        assert answer == {**named, "version": trimtab.__version__, "pid": job.pid}
        while not client.jobs():  # which the first step makes
            time.sleep(PATIENCE)
        client.patch_controls("late", {"lr_scale": 0.5}, reason="smaller steps")
        while not client.controls("late").in_sync:
            time.sleep(PATIENCE)
        told = armed.trimtab("detach", "--pid", str(job.pid)).stdout
        assert told == f"process {job.pid}: late is detached from {url}\n"
        assert files_about(job.pid) == []
        end = job.finished()
    summaries = [one for one in service.store.recorded("late").entries if one.kind is EntryKind.SUMMARY]
    steps = [one.step for one in summaries]
    assert steps == list(range(steps[0], steps[-1] + 1))
    assert 0 < steps[0] < steps[-1] < end["steps"]  # it trained before, and after
    assert (end["own"], end["threads"]) == (OWN, ["MainThread"])
    assert end["digest"] == same_run(end["steps"], service).digest()


def same_run(steps: int, service: Service) -> Loop:
    """A loop on which nobody attached, of which somebody scaled the same steps."""
    entries = [one for one in service.store.recorded("late").entries if one.kind is EntryKind.SUMMARY]
    scales = {one.step: json.loads(one.payload)["applied"]["lr_scale"] for one in entries}
    loop = Loop()
    for step in range(steps):
        loop.lr_scale = scales.get(step, 1.0)
        loop.step()
    return loop


def test_a_run_in_which_nothing_was_changed_is_the_run_it_would_have_been(armed: Environment, tmp_path: Path) -> None:
    with training(armed, tmp_path) as job:
        for number in range(2):  # once more, after it has been let go
            url = f"file:{tmp_path / f'recorded{number}'}"
            armed.answer("attach", "--pid", str(job.pid), "--url", url, "--job-name", "late", *TRAINER)
            while not list((tmp_path / f"recorded{number}").rglob("*.*")):
                time.sleep(PATIENCE)
            armed.answer("detach", "--pid", str(job.pid))
        end = job.finished()
    assert end["digest"] == Loop().trained(end["steps"]).digest()
    assert (end["own"], end["threads"], end["files"]) == (OWN, ["MainThread"], [])


def test_found_by_its_command_line(armed: Environment, tmp_path: Path) -> None:
    with training(armed, tmp_path) as job:
        answer = armed.answer("attach", "--job", str(tmp_path), "--url", "memory:", "--job-name", "late", *TRAINER)
        assert answer["pid"] == job.pid


def test_several_are_told_apart_by_their_numbers_alone(armed: Environment, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with training(armed, folders[0]) as one, training(armed, folders[1]) as two:
        done = armed.trimtab("attach", "--job", str(tmp_path), "--job-name", "late", *TRAINER, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: job: 2 armed processes have '{tmp_path}' in their command lines (")
        assert all(f"{each.pid} " in done.stderr for each in (one, two))
        done = armed.trimtab("attach", "--job", "no such text", "--job-name", "late", *TRAINER, check=False)
        assert done.stderr == (
            "error: job: no armed process has 'no such text' in its command line; `trimtab arm --status` lists them\n"
        )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("attach", "--job-name", "late", *TRAINER, "--adapter", "__main__.broken"),
         "LookupError: this Loop has no loss"),
        (("attach", "--job-name", "late", "--trainer", "__main__.Other", "--adapter", "__main__.attach", "--wait", "0"),
         "ActivationError: no trainer is at work in this process: no thread of it runs a method of __main__.Other; ask "
         "again once it trains, or name its class"),
        (("attach", "--job-name", "late", "--wait", "0"),
         "ActivationError: no trainer is at work in this process: no thread of it runs a method of "
         "trl.trainer.grpo_trainer.GRPOTrainer, trl.experimental.async_grpo.async_grpo_trainer.AsyncGRPOTrainer; ask "
         "again once it trains, or name its class"),
        (("attach", "--job-name", "late", *TRAINER, "--adapter", "nowhere.attach"),
         "ActivationError: nowhere.attach cannot be had in this process: ModuleNotFoundError: No module named "
         "'nowhere'"),
        (("attach", "--job-name", "late", *TRAINER, "--url", "ftp://x"),
         "UrlError: url: 'ftp://x' starts with none of http:, https:, file:, local:, memory:"),
        (("detach",), "ActivationError: nothing was attached to this process while it ran"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_told_and_changes_nothing(
    arguments: tuple[str, ...], why: str, armed: Environment, tmp_path: Path
) -> None:
    with training(armed, tmp_path) as job:
        done = armed.trimtab(*arguments, "--pid", str(job.pid), check=False)
        assert (done.returncode, done.stderr) == (2, f"error: process {job.pid} answers: {why}\n")
        assert files_about(job.pid) == []
        end = job.finished()
    assert (end["digest"], end["own"]) == (Loop().trained(end["steps"]).digest(), OWN)


def test_a_process_is_attached_to_once(armed: Environment, tmp_path: Path) -> None:
    request = {"do": "attach", "url": "memory:", "job": "late", "class": "__main__.Loop", "adapter": "__main__.attach"}
    with training(armed, tmp_path) as job:
        found = process(job.pid)
        assert ask(found, {**request, "wait": 5}, timeout=30)["trainer"] == "__main__.Loop"
        with pytest.raises(ContactError, match="attached to memory: as late already; detach it first"):
            ask(found, {**request, "job": "again"}, timeout=30)
        with pytest.raises(ContactError, match="do: 'dance' is none of attach, detach; this process has trimtab"):
            ask(found, {"do": "dance"}, timeout=30)


def test_many_requests_find_the_process_as_it_was(armed: Environment, tmp_path: Path) -> None:
    with training(armed, tmp_path) as job:
        found = process(job.pid)
        for _ in range(50):
            with pytest.raises(ContactError, match="nothing was attached"):
                ask(found, {"do": "detach"}, timeout=30)
        end = job.finished()
    assert (end["threads"], end["digest"]) == (["MainThread"], Loop().trained(end["steps"]).digest())
