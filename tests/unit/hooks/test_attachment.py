"""An emitter in somebody else's loop: its adapter's faults stay out of the training."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace

import pytest

from trimtab.hooks.attachment import Attachment
from trimtab.hooks.controls import Capabilities, Controls, Liveness
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.knobs import Knob, Panel
from trimtab.hooks.records import Command
from trimtab.hooks.transport.memory import MemoryTransport


class Ridden:
    """A trainer with one knob, and its attachment."""

    def __init__(self) -> None:
        self.trainer = SimpleNamespace(eps=0.2, wrapped=True)
        panel = Panel({"clip_low": Knob.attribute(self.trainer, "eps")})
        self.transport = MemoryTransport()
        emitter = Emitter(self.transport, job="run", attempt=1, capabilities=panel.capabilities())
        self.attachment = Attachment(emitter, panel, undo=lambda: setattr(self.trainer, "wrapped", False))

    def wish(self, generation: int, **overrides: float) -> None:
        self.transport.set_command(
            Command(
                job="run", attempt=1, generation=generation, overrides=dict(overrides), reason="test", issuer="person"
            )
        )


def test_a_command_turns_the_knob_and_its_end_turns_it_back() -> None:
    ridden = Ridden()
    ridden.wish(1, clip_low=0.1)
    assert ridden.attachment.end_step(step=0) == Controls(clip_low=0.1)
    assert ridden.trainer.eps == 0.1
    ridden.wish(2)
    ridden.attachment.end_step(step=1)
    assert ridden.trainer.eps == 0.2


def test_detaching_puts_everything_back_and_may_be_repeated() -> None:
    ridden = Ridden()
    ridden.wish(1, clip_low=0.1)
    ridden.attachment.end_step(step=0)
    ridden.attachment.detach()
    ridden.attachment.detach()
    assert (ridden.trainer.eps, ridden.trainer.wrapped, ridden.attachment.attached) == (0.2, False, False)


def test_three_steps_with_an_error_take_it_off_once_and_loudly(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="trimtab")
    ridden = Ridden()
    for step in range(5):
        with ridden.attachment.safely("reading a tensor"):
            raise KeyError("old_logps")
        ridden.attachment.end_step(step=step)
        assert ridden.attachment.attached == (step < 2)
    loud = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(loud) == 1
    assert "in 3 steps in a row" in loud[0]
    assert ridden.trainer.wrapped is False


def test_errors_in_single_steps_never_take_it_off() -> None:
    ridden = Ridden()
    for step in range(9):
        if step % 3:
            with ridden.attachment.safely("reading a tensor"):
                raise ValueError
        ridden.attachment.end_step(step=step)
    assert ridden.attachment.attached
    assert ridden.attachment.failures == 6


def test_a_wish_to_stop_is_not_swallowed() -> None:
    with pytest.raises(KeyboardInterrupt), Ridden().attachment.safely("anything"):
        raise KeyboardInterrupt


def test_what_the_trainer_would_not_take_is_refused_with_the_reason() -> None:
    class Frozen:
        eps = 0.2

        def __setattr__(self, name: str, value: object) -> None:
            raise TypeError(f"{name} is frozen")

    panel = Panel({"clip_low": Knob.attribute(Frozen(), "eps")})
    transport = MemoryTransport()
    emitter = Emitter(transport, job="run", attempt=1, capabilities=Capabilities(controls={"clip_low": Liveness.LIVE}))
    attachment = Attachment(emitter, panel, undo=lambda: None)
    transport.set_command(
        Command(job="run", attempt=1, generation=1, overrides={"clip_low": 0.1}, reason="test", issuer="person")
    )
    attachment.end_step(step=0)
    attachment.end_step(step=1)
    emitter.close()
    assert transport.sent[-1].refusals == ("clip_low: the trainer would not take it: TypeError: eps is frozen",)
    assert emitter.controls.clip_low == 0.2


def test_detached_from_another_thread_in_the_middle_of_a_step_it_turns_nothing_any_more() -> None:
    ridden = Ridden()
    ridden.wish(1, clip_low=0.1)
    heard = ridden.transport.command

    def detaching() -> Command | None:
        """The emitter asks for its command; before the knobs are turned somebody detaches."""
        other = threading.Thread(target=ridden.attachment.detach)
        other.start()
        other.join()
        return heard()

    ridden.transport.command = detaching  # type: ignore[method-assign]
    ridden.attachment.end_step(step=0)
    assert ridden.trainer.eps == 0.2
