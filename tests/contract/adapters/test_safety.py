"""What every adapter promises, whatever happens: the trainer trains as if it were alone, to the last bit.

One suite over all adapters, with `test_safety_processes.py`. To add one, name its rig in
`tests/support/rigs/__init__.py`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from loopback import OK, LoopbackAgent
from rigs import RIGS, Rig
from rigs.base import Batch, Step

from trimtab.hooks.knobs import Knob
from trimtab.hooks.records import Command, StepSummary
from trimtab.hooks.transport.memory import MemoryTransport

SETTLED = 4
"""Steps within which a command is in effect, or an adapter that fails is off: one may be heard a step late, and told a
step later."""


def run(rig: Rig, steps: int) -> list[Step]:
    return [rig.step() for _ in range(steps)]


def alone(name: str, steps: int) -> list[Step]:
    """What the trainer computes without an adapter."""
    rig = RIGS[name]()
    try:
        return run(rig, steps)
    finally:
        rig.close()


def same(one: Sequence[Step], other: Sequence[Step]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a.loss, b.loss) and torch.equal(a.gradient, b.gradient) for a, b in zip(one, other, strict=True)
    )


def transport_of(rig: Rig) -> MemoryTransport:
    assert rig.attachment is not None
    transport = rig.attachment.emitter.transport
    assert isinstance(transport, MemoryTransport)
    return transport


def order(rig: Rig, generation: int, *, job: str = "run", later: int = 0, **overrides: Any) -> None:
    """Publish a command, as an agent would."""
    assert rig.attachment is not None
    attempt = rig.attachment.emitter.attempt + later
    transport_of(rig).set_command(
        Command(job=job, attempt=attempt, generation=generation, overrides=overrides, reason="test", issuer="person")
    )


def reported(rig: Rig) -> list[StepSummary]:
    assert rig.attachment is not None
    transport = transport_of(rig)
    rig.attachment.emitter.close()
    return transport.sent


def test_losses_and_gradients_are_those_without_it(rig: Rig, name: str) -> None:
    without = alone(name, 6)
    rig.attach()
    assert same(run(rig, 6), without)
    assert rig.attachment is not None
    assert rig.attachment.failures == 0
    steps = [summary.step for summary in reported(rig)]
    assert steps == list(range(rig.first_step, rig.first_step + len(steps)))
    assert len(steps) >= 5


def test_an_agent_that_is_not_there(rig: Rig, name: str, agent: LoopbackAgent) -> None:
    agent.stop()
    without = alone(name, 6)
    rig.attach(agent.url)
    assert same(run(rig, 6), without)
    assert rig.attachment is not None
    assert rig.attachment.attached


def test_an_agent_that_is_killed(rig: Rig, name: str, agent: LoopbackAgent) -> None:
    without = alone(name, 8)
    rig.attach(agent.url)
    steps = run(rig, 4)
    agent.stop()
    assert same(steps + run(rig, 4), without)
    assert rig.attachment is not None
    assert rig.attachment.attached


def test_an_agent_that_does_not_answer(rig: Rig, name: str, agent: LoopbackAgent) -> None:
    agent.answer = agent.hold
    without = alone(name, 6)
    rig.attach(agent.url)
    assert same(run(rig, 6), without)
    assert agent.holding.wait(20)
    assert not agent.release.is_set()  # all steps were made while the first answer was still held back


@pytest.mark.parametrize(
    "reply",
    [
        b"\x00\xff garbage",
        b"",
        [1, 2],
        {"command": "clip_high"},
        {"command": {"generation": "x", "overrides": None}},
        {"command": {"job": "run", "attempt": 1, "generation": -1, "overrides": {}, "reason": "", "issuer": ""}},
    ],
    ids=["bytes", "nothing", "a list", "a word", "wrong types", "no such generation"],
)
def test_garbage_from_the_agent(rig: Rig, name: str, agent: LoopbackAgent, reply: Any) -> None:
    agent.answer = lambda _: (200, {}, reply)
    without = alone(name, 5)
    rig.attach(agent.url)
    assert same(run(rig, 5), without)
    agent.answer = lambda _: OK


def test_orders_that_are_not_for_it(rig: Rig, name: str) -> None:
    without = alone(name, 1 + 4 * SETTLED)
    rig.attach()
    steps = run(rig, 1)
    order(rig, 9)
    steps += run(rig, SETTLED)
    for wrong in ({"generation": 8}, {"generation": 10, "later": 1}, {"generation": 10, "job": "another"}):
        order(rig, clip_high=0.01, **wrong)
        steps += run(rig, SETTLED)
    assert same(steps, without)
    assert reported(rig)[-1].refusals == ()


def test_orders_that_cannot_be(rig: Rig, name: str) -> None:
    without = alone(name, 1 + SETTLED)
    rig.attach()
    steps = run(rig, 1)
    wrong = {"clip_high": -1.0, "clip_low": float("nan"), "dual_clip": "off", "eps": 0.1, "centering": True}
    order(rig, 1, **wrong)
    assert same(steps + run(rig, SETTLED), without)
    last = reported(rig)[-1]
    assert sorted(refusal.partition(":")[0] for refusal in last.refusals) == sorted(wrong)
    assert last.overrides == {}


def test_an_order_takes_effect_and_its_end_puts_back_exactly_what_was(rig: Rig, name: str) -> None:
    without = alone(name, 2 + 3 * SETTLED)
    rig.attach()
    steps = run(rig, 2)
    own = dict(rig.used)
    order(rig, 1, clip_high=0.03125)
    run(rig, SETTLED)
    assert rig.used == own | {"high": 0.03125}
    order(rig, 2)
    run(rig, SETTLED)
    assert rig.used == own
    assert same(steps, without[:2])
    assert same(run(rig, SETTLED), without[-SETTLED:])
    applied = [summary.applied.clip_high for summary in reported(rig)]
    assert set(applied) == {own["high"], 0.03125}


def test_an_error_in_the_hook_takes_it_off_once_and_loudly(
    rig: Rig, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, logger="trimtab")
    without = alone(name, 2 + 4 * SETTLED)
    rig.attach()
    run(rig, 2)
    own = dict(rig.used)
    order(rig, 1, clip_high=0.03125)
    run(rig, SETTLED)
    assert rig.used != own

    def broken() -> Any:
        raise KeyError("an attribute that another version does not have")

    assert rig.attachment is not None
    rig.attachment.panel.knobs["lr_scale"] = Knob(get=broken)
    run(rig, 2 * SETTLED)
    assert not rig.attachment.attached
    assert same(run(rig, SETTLED), without[-SETTLED:])
    assert rig.used == own
    loud = [record.getMessage() for record in caplog.records]
    assert len(loud) == 1
    assert "in 3 steps in a row" in loud[0]


def test_values_that_are_not_finite_are_counted_before_the_trainer_hides_them(rig: Rig) -> None:
    batches = 0

    def spoiled() -> Batch:
        nonlocal batches
        batches += 1
        batch = Rig.batch(rig)
        rollout = batch.rollout.clone()
        rollout[0, 1] = float("nan")
        return replace(batch, rollout=rollout)

    rig.batch = spoiled  # type: ignore[method-assign]
    rig.attach()
    run(rig, 3)
    seen = sum(summary.nonfinite["rollout_logprobs"].nan for summary in reported(rig))
    assert seen in (batches, batches * 2 // 3)  # slime reports a step when the next one begins


def test_the_ratio_is_seen_before_it_is_clamped(rig: Rig) -> None:
    def far() -> Batch:
        batch = Rig.batch(rig)
        old, rollout, shift = batch.old.clone(), batch.rollout.clone(), batch.shift.detach().clone()
        old[0, 1], rollout[0, 1], shift[0, 1] = -40, -40, 30
        return replace(batch, old=old, rollout=rollout, shift=shift.requires_grad_())

    rig.batch = far  # type: ignore[method-assign]
    rig.attach()
    run(rig, 3)
    assert reported(rig)[0].sketches["update"].positive.quantile(1.0) > 25  # nats, of 30; frameworks clamp at 20


BY_ENVIRONMENT = [each for each, rig in RIGS.items() if rig.by_environment]


@pytest.mark.parametrize("name", BY_ENVIRONMENT)
def test_without_its_environment_the_trainer_trains_alone(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="trimtab")
    without = alone(name, 3)
    monkeypatch.delenv("TRIMTAB_URL", raising=False)
    rig = RIGS[name]()
    try:
        rig.attach(url="", job="")
        assert same(run(rig, 3), without)
        assert rig.attachment is None
    finally:
        rig.close()
    assert [record.getMessage() for record in caplog.records] == [
        "trimtab: not attached: set TRIMTAB_URL and TRIMTAB_JOB in the environment of every worker"
    ]


@pytest.mark.parametrize("name", BY_ENVIRONMENT)
def test_where_it_cannot_attach_the_trainer_trains_alone(name: str, caplog: pytest.LogCaptureFixture) -> None:
    without = alone(name, 3)
    rig = RIGS[name]()
    try:
        rig.attach(url="ftp://nowhere", job="run")
        assert same(run(rig, 3), without)
        assert rig.attachment is None
    finally:
        rig.close()
    assert "training goes on unwatched" in caplog.text


@pytest.mark.parametrize("name", sorted(set(RIGS) - set(BY_ENVIRONMENT)))
def test_where_a_call_attaches_what_is_wrong_is_raised_before_the_first_step(name: str) -> None:
    without = alone(name, 3)
    rig = RIGS[name]()
    try:
        with pytest.raises(ValueError, match="ftp"):
            rig.attach(url="ftp://nowhere", job="run")
        assert same(run(rig, 3), without)
    finally:
        rig.close()


def test_a_fork_trains_on_and_says_nothing(rig: Rig, name: str) -> None:
    without = alone(name, 6)
    rig.attach()
    steps = run(rig, 3)
    transport = transport_of(rig)
    child = os.fork()
    if child == 0:  # nothing in here may reach pytest
        status = 1
        try:
            before = len(transport.sent)
            good = same(run(rig, 3), without[3:])
            status = 0 if good and len(transport.sent) == before else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    before = len(transport.sent)
    assert same(steps + run(rig, 3), without)
    assert len(transport.sent) == before + 3
