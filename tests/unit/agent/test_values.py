"""Values that are made quickly are the dataclasses that they were."""

import dataclasses
from dataclasses import FrozenInstanceError, dataclass, field
from typing import ClassVar

import pytest

from trimtab.agent.run_state import RunState
from trimtab.agent.state import Mode
from trimtab.agent.values import maker, quick, replace


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    UNIT: ClassVar[str] = "nats"

    first: int
    second: float = 0.5
    third: dict[str, int] = field(default_factory=dict)


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Grown(Made):
    fourth: str
    second: float = 1.5


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"size: {self.size}")


def test_fields_are_given_or_have_their_defaults() -> None:
    made = Made(first=1)
    assert (made.first, made.second, made.third, made.UNIT) == (1, 0.5, {}, "nats")
    assert made.third is not Made(first=1).third
    assert repr(Made(first=1, second=2.0, third={"a": 3})) == "Made(first=1, second=2.0, third={'a': 3})"
    assert Made(first=1) == made != Made(first=2)
    assert dataclasses.asdict(Grown(first=1, fourth="x")) == {"first": 1, "second": 1.5, "third": {}, "fourth": "x"}


def test_they_are_frozen_and_have_these_fields_only() -> None:
    made = Made(first=1)
    with pytest.raises(FrozenInstanceError):
        made.first = 2  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        made.other = 2  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="other"):
        Made(first=1, other=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="first"):
        Made()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Made(1)  # type: ignore[misc]


def test_their_own_checks_are_made() -> None:
    assert Checked(size=1).size == 1
    with pytest.raises(ValueError, match="size: -1"):
        Checked(size=-1)
    with pytest.raises(TypeError, match="Checked checks its fields"):
        replace(Checked(size=1), size=-1)


def test_a_changed_value_is_what_dataclasses_make_of_it() -> None:
    state = RunState.initial("run")
    changes = {"mode": Mode.AUTO, "tick": 7, "verdicts": {}, "pin": "1:40"}
    assert replace(state, **changes) == dataclasses.replace(state, **changes)  # type: ignore[arg-type]
    assert (state.tick, replace(state, tick=7).tick) == (0, 7)
    grown = replace(Grown(first=1, fourth="x"), first=2)
    assert (type(grown), grown) == (Grown, Grown(first=2, fourth="x"))
    with pytest.raises(AttributeError):
        replace(state, no_such_field=1)  # type: ignore[call-arg]


def test_a_value_that_does_not_change_is_itself() -> None:
    state = RunState.initial("run")
    assert replace(state) is state
    assert replace(state, tick=state.tick, tracks=state.tracks) is state
    assert replace(state, tracks={}) is not state


def test_a_maker_makes_what_the_class_makes() -> None:
    make, checked = maker(Grown), maker(Checked)
    assert make(first=1, fourth="x") == Grown(first=1, fourth="x")
    assert make(first=1, fourth="x", second=2.0, third={"a": 1}) == Grown(
        first=1, fourth="x", second=2.0, third={"a": 1}
    )
    assert make(first=1, fourth="x").third is not make(first=1, fourth="x").third
    assert type(make(first=1, fourth="x")) is Grown
    with pytest.raises(TypeError, match="fourth"):
        make(first=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="size: -1"):
        checked(size=-1)
