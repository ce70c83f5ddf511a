"""Knobs of somebody else's trainer: read as levels, turned, and put back exactly."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trimtab.hooks.controls import Capabilities, ControlError, Controls, Liveness
from trimtab.hooks.knobs import Knob, Panel


def low(trainer: SimpleNamespace) -> Panel:
    return Panel({"clip_low": Knob.attribute(trainer, "eps", shown=lambda eps: min(eps, 1.0))})


def test_an_override_is_put_and_lifted_to_the_very_value_that_ours_is_only_a_likeness_of() -> None:
    trainer = SimpleNamespace(eps=10.0)
    panel = low(trainer)
    own = panel.own()
    assert own == Controls(clip_low=1.0)
    assert panel.turn({"clip_low": 0.2}) == ()
    assert trainer.eps == 0.2
    assert panel.own() == own  # what was put from here is not the run's own
    panel.turn({})
    assert trainer.eps == 10.0


def test_a_schedule_of_the_run_moves_its_own_value_also_under_an_override() -> None:
    trainer = SimpleNamespace(eps=0.3)
    panel = low(trainer)
    panel.turn({"clip_low": 0.1})
    trainer.eps = 0.25  # the run's schedule
    assert panel.own().clip_low == 0.25
    panel.turn({"clip_low": 0.1})
    assert trainer.eps == 0.1
    panel.release()
    assert trainer.eps == 0.25


def test_nothing_overridden_is_nothing_put_whatever_our_controls_can_express() -> None:
    trainer = SimpleNamespace(eps=1e9, high="adaptive")
    panel = Panel({"clip_low": Knob.attribute(trainer, "eps"), "clip_high": Knob.attribute(trainer, "high")})
    panel.own()
    panel.turn({})
    assert (trainer.eps, trainer.high) == (1e9, "adaptive")


def test_what_is_read_in_the_middle_of_a_release_takes_nothing_from_the_rest() -> None:
    trainer = SimpleNamespace(eps=0.3, high=0.2)

    class Reading:
        """A knob at whose putting back training reads all of them, as another thread may."""

        def __call__(self, value: float) -> None:
            trainer.eps = value
            if value == 0.3:  # it is put back
                panel.own()

    low = Knob(get=lambda: trainer.eps, put=Reading())
    panel = Panel({"clip_low": low, "clip_high": Knob.attribute(trainer, "high")})
    panel.own()
    panel.turn({"clip_low": 0.1, "clip_high": 0.5})
    panel.release()
    assert (trainer.eps, trainer.high) == (0.3, 0.2)


def test_release_leaves_what_somebody_else_has_set_since() -> None:
    trainer = SimpleNamespace(eps=0.3)
    panel = low(trainer)
    panel.turn({"clip_low": 0.1})
    trainer.eps = 0.4
    panel.release()
    assert trainer.eps == 0.4


def test_a_value_that_no_control_can_express_stands_at_the_default_and_comes_back() -> None:
    trainer = SimpleNamespace(eps="adaptive")
    panel = Panel({"clip_low": Knob.attribute(trainer, "eps")})
    assert panel.own() == Controls()
    panel.turn({"clip_low": 0.1})
    assert trainer.eps == 0.1
    panel.release()
    assert trainer.eps == "adaptive"


def test_what_the_trainer_will_not_take_is_named_and_the_rest_is_turned() -> None:
    class Frozen:
        eps = 0.2

        def __setattr__(self, name: str, value: object) -> None:
            raise TypeError(f"{name} is frozen")

    trainer = SimpleNamespace(high=0.2)
    panel = Panel({"clip_low": Knob.attribute(Frozen(), "eps"), "clip_high": Knob.attribute(trainer, "high")})
    refused = panel.turn({"clip_low": 0.1, "clip_high": 0.3})
    assert refused == (("clip_low", "TypeError: eps is frozen"),)
    assert trainer.high == 0.3


def test_a_knob_for_a_restart_is_never_turned_and_says_why() -> None:
    trainer = SimpleNamespace(eps=0.2)
    panel = Panel(
        {"clip_low": Knob.attribute(trainer, "eps", liveness=Liveness.RESTART, reason="the loss is compiled")}
    )
    panel.turn({"clip_low": 0.1})
    assert trainer.eps == 0.2
    refusal = panel.capabilities().refusal("clip_low", 0.1)
    assert refusal == "clip_low: restart in this trainer: the loss is compiled"


def test_an_attribute_that_is_not_there_fails_when_the_knob_is_made() -> None:
    with pytest.raises(AttributeError):
        Knob.attribute(SimpleNamespace(), "eps")


def test_reasons_are_of_controls_and_bounded() -> None:
    with pytest.raises(ControlError, match=r"reasons\.clip_lwo"):
        Capabilities(controls={}, reasons={"clip_lwo": "?"})
    with pytest.raises(ControlError, match="301 characters"):
        Capabilities(controls={}, reasons={"clip_low": "x" * 301})
