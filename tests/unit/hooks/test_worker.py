"""A worker attaches itself by its environment, once, and not at all where it cannot be."""

from __future__ import annotations

import logging
import os

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from trimtab.hooks.knobs import Panel
from trimtab.hooks.worker import OncePerProcess, after_optimizer_steps, attach_worker, torch_ranks


def test_it_is_made_once_also_where_it_could_not_be() -> None:
    calls: list[int] = []
    slot: OncePerProcess[int] = OncePerProcess()

    def fail() -> None:
        calls.append(1)

    assert slot.made() is None
    assert [slot.get(fail), slot.get(fail), slot.get(lambda: 7)] == [None, None, None]
    assert len(calls) == 1
    slot.clear()
    assert (slot.get(lambda: 7), slot.made()) == (7, 7)


def test_a_fork_has_none() -> None:
    slot: OncePerProcess[int] = OncePerProcess()
    slot.get(lambda: 7)
    child = os.fork()
    if child == 0:
        os._exit(0 if (slot.get(lambda: 8), slot.made()) == (None, None) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_it_is_attached_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("URL", "memory:"), ("JOB", "there"), ("ATTEMPT", "5")):
        monkeypatch.setenv(f"TRIMTAB_{name}", value)
    attachment = attach_worker(Panel({}), rollout_logprobs=True)
    assert attachment is not None
    emitter = attachment.emitter
    assert (emitter.job, emitter.attempt, emitter.capabilities.rollout_logprobs) == ("there", 5, True)
    attachment.detach()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("TRIMTAB_JOB", "a/b", "RecordError: job: 'a/b'"),
        ("TRIMTAB_ATTEMPT", "first", "ValueError: invalid literal"),
        ("TRIMTAB_URL", "ftp://x", "ftp"),
    ],
)
def test_what_it_cannot_be_attached_with_is_said_and_not_raised(
    name: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, logger="trimtab")
    monkeypatch.setenv("TRIMTAB_URL", "memory:")
    monkeypatch.setenv("TRIMTAB_JOB", "run")
    monkeypatch.setenv(name, value)
    assert attach_worker(Panel({})) is None
    (said,) = [record.getMessage() for record in caplog.records]
    assert why in said
    assert said.endswith("training goes on unwatched")


def test_one_rank_needs_no_collective() -> None:
    assert torch_ranks() is None


def test_only_the_first_optimizer_that_steps_counts_and_only_until_it_is_taken_off() -> None:
    steps: list[int] = []
    first, second = (torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.0) for _ in range(2))
    off = after_optimizer_steps(lambda: steps.append(1))
    for optimizer in (first, second, first):
        optimizer.step()
    off()
    first.step()
    assert len(steps) == 2


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.0)


def test_counting_ends_within_a_step_whoever_has_hooked_into_it_since() -> None:
    steps: list[str] = []

    def call() -> None:
        steps.append("ours")
        off()

    off = after_optimizer_steps(call)
    theirs = register_optimizer_step_post_hook(lambda *_: steps.append("theirs"))
    made = optimizer()
    made.step(), made.step()
    theirs.remove()
    assert steps == ["ours", "theirs", "theirs"]


def test_what_fails_behind_a_step_is_said_and_ends_the_counting(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise KeyError("gone")

    after_optimizer_steps(fail)
    made = optimizer()
    made.step(), made.step()
    assert len(calls) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "trimtab: steps are not counted any more: KeyError: 'gone'"
    ]
