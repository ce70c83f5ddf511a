"""The emitter: what it reports, and what it applies."""

from __future__ import annotations

import numpy as np
import pytest
from hook_runs import CAN, command, tensors

from trimtab.hooks.accumulate import Drained
from trimtab.hooks.controls import ControlError, Controls
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.layout import SIZE
from trimtab.hooks.records import RecordError, SignTotals
from trimtab.hooks.transport.memory import MemoryTransport


def test_a_step_is_reported_with_what_was_in_effect_during_it(emitter: Emitter, transport: MemoryTransport) -> None:
    emitter.observe(**tensors())
    emitter.observe(**tensors())
    transport.set_command(command(2, clip_low=0.1))
    scalars = {"loss": 0.5, "reward_mean": None}
    returned = emitter.end_step(step=7, scalars=scalars, policy_version=6, staleness=1.5, pass_index=2)
    assert returned == emitter.controls == Controls(clip_low=0.1)
    emitter.end_step(step=8)
    first, second = transport.sent
    assert (first.job, first.attempt, first.step, first.rank) == ("run", 1, 7, 3)
    assert (first.scalars, first.policy_version, first.staleness, first.pass_index) == ({"loss": 0.5}, 6, 1.5, 2)
    assert (first.applied, first.generation, first.capabilities) == (Controls(), 0, CAN)
    assert (second.applied, second.generation) == (Controls(clip_low=0.1), 2)
    assert first.positive == SignTotals(tokens=8, advantage_abs=8.0, entropy_tokens=8, entropy=4.0, entropy_sq=2.0)
    assert first.sketches["update"].positive.sum("log_ratio") == 1.0
    assert first.sketches["mismatch"].negative.sum("log_ratio") == 3.0
    assert (second.tokens, second.sketches) == (0, {})


def test_the_update_sketch_follows_the_ratios_reference(emitter: Emitter, transport: MemoryTransport) -> None:
    transport.set_command(command(1, ratio_reference="sampler"))
    for step in range(2):
        emitter.observe(**tensors())
        emitter.end_step(step=step)
    assert [item.sketches["update"].positive.sum("log_ratio") for item in transport.sent] == [0.5, 2.0]


def test_lifting_an_override_returns_to_the_runs_own_value_as_it_is_now(
    emitter: Emitter, transport: MemoryTransport
) -> None:
    transport.set_command(command(1, clip_low=0.1))
    assert emitter.end_step(step=0, base=Controls(clip_low=0.4, lr_scale=0.5)) == Controls(clip_low=0.1, lr_scale=0.5)
    transport.set_command(command(2))
    assert emitter.end_step(step=1) == Controls(clip_low=0.4, lr_scale=0.5)


def test_refusals_are_reported_until_the_next_generation(emitter: Emitter, transport: MemoryTransport) -> None:
    transport.set_command(command(1, clip_low=5.0, centering=True))
    assert emitter.end_step(step=0) == Controls(centering=True)
    emitter.end_step(step=1)
    transport.set_command(command(2, centering=True))
    emitter.end_step(step=2)
    emitter.end_step(step=3)
    assert [len(item.refusals) for item in transport.sent] == [0, 1, 1, 0]
    assert transport.sent[1].refusals == ("clip_low: 5.0 is not a number in [0, 1]",)


def test_an_agent_in_the_process_answers_at_once() -> None:
    transport = MemoryTransport(lambda summary: command(summary.step + 1, clip_low=0.1 * (summary.step + 1)))
    emitter = Emitter(transport, job="run", attempt=1, capabilities=CAN)
    assert [emitter.end_step(step=step).clip_low for step in range(3)] == [0.1, 0.2, pytest.approx(0.3)]


def test_vectors_that_are_on_their_way_are_sent_a_step_later_and_in_order(transport: MemoryTransport) -> None:
    """As on an accelerator: a copy that has not arrived is not waited for before the next step has ended."""
    arrived: list[bool] = []
    waited: list[int] = []

    class Slow:
        def __init__(self) -> None:
            self.drains = 0

        def drain(self) -> Drained:
            number = self.drains
            self.drains += 1
            arrived.append(False)

            def read() -> np.ndarray:
                if not arrived[number]:
                    waited.append(number)
                return np.zeros(SIZE)

            return Drained(lambda: arrived[number], read)

    emitter = Emitter(transport, job="run", attempt=1)
    emitter._accumulator = Slow()  # type: ignore[assignment]
    emitter.end_step(step=0)
    assert transport.sent == []
    emitter.end_step(step=1)
    assert ([item.step for item in transport.sent], waited) == ([0], [0])
    arrived[1] = True
    emitter.end_step(step=2)
    assert ([item.step for item in transport.sent], waited) == ([0, 1], [0])
    emitter.close()
    assert [item.step for item in transport.sent] == [0, 1, 2]


def test_after_closing_nothing_happens(transport: MemoryTransport) -> None:
    emitter = Emitter(transport, job="run", attempt=1)
    emitter.end_step(step=0)
    emitter.close()
    emitter.close()
    emitter.observe(**tensors())
    assert emitter.end_step(step=1) == Controls()
    assert ([item.step for item in transport.sent], emitter.failures) == ([0], 0)


def test_resuming_goes_on_with_the_checkpoints_overrides(emitter: Emitter, transport: MemoryTransport) -> None:
    emitter.resume(base=Controls(clip_high=0.3), overrides={"clip_low": 0.1}, generation=4)
    assert emitter.controls == Controls(clip_low=0.1, clip_high=0.3)
    assert (emitter.overrides, emitter.generation) == ({"clip_low": 0.1}, 4)
    transport.set_command(command(4, clip_low=0.4))
    assert emitter.end_step(step=10).clip_low == 0.1
    assert (transport.sent[0].applied, transport.sent[0].generation) == (Controls(clip_low=0.1, clip_high=0.3), 4)
    assert transport.sent[0].overrides == {"clip_low": 0.1}


def test_resuming_with_what_no_control_takes_changes_nothing(emitter: Emitter) -> None:
    with pytest.raises(ControlError, match="clip_low: 7 is not a number"):
        emitter.resume(base=Controls(clip_high=0.3), overrides={"clip_low": 7}, generation=4)
    assert (emitter.controls, emitter.overrides, emitter.generation) == (Controls(), {}, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"job": "no spaces", "attempt": 1}, "job: 'no spaces' must be"),
        ({"job": "run", "attempt": -1}, "attempt: -1 is negative"),
        ({"job": "run", "attempt": 1, "rank": -1}, "rank: -1 is negative"),
    ],
)
def test_what_cannot_name_a_run_is_refused(transport: MemoryTransport, arguments: dict, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        Emitter(transport, **arguments)


def test_an_override_that_the_runs_own_schedule_makes_impossible_is_refused_then(
    emitter: Emitter, transport: MemoryTransport
) -> None:
    transport.set_command(command(1, centering=True))
    assert emitter.end_step(step=0).centering
    after = emitter.end_step(step=1, base=Controls(objective="gspo"))
    emitter.end_step(step=2, base=Controls(objective="gspo"))
    assert (after.objective, after.centering) == ("gspo", False)
    assert transport.sent[2].refusals == ("centering: needs a weight for each token, and gspo has one a sequence",)
    assert transport.sent[2].overrides == {}


def test_a_new_attempt_keeps_the_overrides_and_takes_only_its_own_commands(
    emitter: Emitter, transport: MemoryTransport
) -> None:
    transport.set_command(command(2, clip_low=0.1))
    emitter.end_step(step=0)
    emitter.begin_attempt(2, Controls(lr_scale=0.5))
    assert emitter.controls == Controls(clip_low=0.1, lr_scale=0.5)
    transport.set_command(command(3, clip_low=0.3))  # meant for the attempt before
    emitter.end_step(step=0)
    emitter.end_step(step=1)
    assert [(item.attempt, item.step, item.generation) for item in transport.sent] == [(1, 0, 0), (2, 0, 2), (2, 1, 2)]
    assert emitter.controls.clip_low == 0.1
    with pytest.raises(RecordError, match="attempt: 2 is not above 2"):
        emitter.begin_attempt(2, Controls())


def test_an_override_that_cannot_be_carried_out_after_all_is_dropped_and_named(
    emitter: Emitter, transport: MemoryTransport
) -> None:
    transport.set_command(command(1, centering=True, clip_low=0.1))
    emitter.end_step(step=0)
    emitter.refuse("centering", "the head is gone")
    assert emitter.controls == Controls(clip_low=0.1)
    emitter.end_step(step=1)
    assert (transport.sent[1].overrides, transport.sent[1].refusals) == (
        {"clip_low": 0.1},
        ("centering: the head is gone",),
    )


def test_scalars_beyond_the_most_are_left_out_and_counted(emitter: Emitter, transport: MemoryTransport) -> None:
    for step in range(5):
        emitter.end_step(step=step, scalars={"x" * 200: 1.0, 7: 1.0} | {f"s{i}": 1.0 for i in range(600)})  # type: ignore[dict-item]
    emitter.end_step(step=5, scalars={"loss": 0.5})
    assert [len(item.scalars) for item in transport.sent] == [512] * 5 + [1]
    assert emitter.failures == 15
    assert emitter.dropped == 0


def test_refusals_beyond_the_most_are_left_out(emitter: Emitter, transport: MemoryTransport) -> None:
    for _ in range(100):
        emitter.refuse("centering", "no")
    emitter.end_step(step=0)
    emitter.end_step(step=1)
    assert [len(item.refusals) for item in transport.sent] == [64, 64]
