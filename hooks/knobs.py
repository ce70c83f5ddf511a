"""What somebody else's trainer lets be changed while it runs: its knobs, read and turned at step boundaries.

A knob is one of our controls in a trainer that has it under another name, in another unit, or nowhere but in what an
adapter does inside the loss. Reading and turning are levels: whatever the trainer holds that was not put there from
here is the run's own, a schedule of its own included, and an override that is lifted puts exactly that back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.hooks.controls import Capabilities, ControlError, Controls, ControlValue, Liveness, check_value

TURNED = (Liveness.LIVE, Liveness.NEXT_ROLLOUT)


def _same(value: Any) -> Any:
    return value


def restart(reason: str) -> dict[str, Any]:
    """What a knob says that cannot be turned while the run goes on, for its last arguments."""
    return {"liveness": Liveness.RESTART, "reason": reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One control of a trainer.

    >>> class Trainer: epsilon = 0.2
    >>> knob = Knob.attribute(Trainer, "epsilon")
    >>> knob.get(), knob.put(0.3), Trainer.epsilon
    (0.2, None, 0.3)
    """

    get: Callable[[], Any]
    """What the trainer holds, in its own terms."""
    put: Callable[[Any], None] | None = None
    """Gives the trainer a value in its own terms; None where the adapter itself obeys the control."""
    shown: Callable[[Any], ControlValue] = _same
    """The trainer's value as one of our control's."""
    told: Callable[[Any], Any] = _same
    """The other way round."""
    liveness: Liveness = Liveness.LIVE
    reason: str = ""
    """Why it cannot be turned while the run goes on, or what a run has to be started with for that."""

    @classmethod
    def attribute(cls, owner: Any, name: str, **rest: Any) -> Knob:
        """The attribute `name` of `owner`, read anew wherever the trainer uses it.

        Raises:
            AttributeError: there is none, so the trainer is of another version than the adapter was written for.
        """
        getattr(owner, name)
        return cls(get=lambda: getattr(owner, name), put=lambda value: setattr(owner, name, value), **rest)

    @classmethod
    def obeyed(cls, value: ControlValue, **rest: Any) -> Knob:
        """A control that the adapter itself obeys; the run's own `value` of it never changes."""
        return cls(get=lambda: value, **rest)


class Panel:
    """All knobs of one trainer. Another thread may release them while training reads and turns them.

    >>> class Trainer: epsilon_low = 10.0  # never clips
    >>> panel = Panel({"clip_low": Knob.attribute(Trainer, "epsilon_low", shown=lambda e: min(e, 1.0))})
    >>> own = panel.own()
    >>> panel.turn({"clip_low": 0.2}), Trainer.epsilon_low, panel.own() == own
    ((), 0.2, True)
    >>> panel.turn({}), Trainer.epsilon_low
    ((), 10.0)
    """

    def __init__(self, knobs: Mapping[str, Knob]) -> None:
        self.knobs = dict(knobs)
        self._own: dict[str, Any] = {}
        self._put: dict[str, Any] = {}
        """What was put there from here and not by the run, in the trainer's terms."""
        self._lock = threading.RLock()

    def capabilities(self, **facts: Any) -> Capabilities:
        """What can be turned, and why the rest cannot; `facts` are the other fields of `Capabilities`."""
        return Capabilities(
            controls={name: knob.liveness for name, knob in self.knobs.items()},
            reasons={name: knob.reason for name, knob in self.knobs.items() if knob.reason},
            **facts,
        )

    def own(self) -> Controls:
        """The run's own controls now. What our controls cannot express of them stands at its default."""
        with self._lock:
            for name, knob in self.knobs.items():
                self._read(name, knob)
            return Controls().overlaid({name: value for name in self.knobs if (value := self._shown(name)) is not None})

    def held(self, name: str) -> Any:
        """The run's own value of one of them, in its own terms, as it was last read."""
        return self._own[name]

    def turn(self, overrides: Mapping[str, ControlValue]) -> tuple[tuple[str, str], ...]:
        """Give the trainer these overrides, and its own value of everything else. The names of those that it would not
        take, with the reason."""
        refused = []
        with self._lock:
            for name, knob in self.knobs.items():
                if knob.put is None or knob.liveness not in TURNED:
                    continue
                try:
                    if name in overrides:
                        self._override(name, knob, overrides[name])
                    else:
                        self._put_back(name, knob)
                except Exception as error:
                    refused.append((name, f"{type(error).__name__}: {error}"))
        return tuple(refused)

    def release(self) -> None:
        """Put back everything that is still as it was put from here."""
        with self._lock:
            for name in list(self._put):
                self._put_back(name, self.knobs[name])

    def _read(self, name: str, knob: Knob) -> None:
        held = knob.get()
        if name not in self._put or held != self._put[name]:
            self._own[name] = held
            self._put.pop(name, None)

    def _override(self, name: str, knob: Knob, value: ControlValue) -> None:
        assert knob.put is not None
        self._read(name, knob)
        # The run's own value is left exactly as it is, also where ours is only a likeness of it.
        wanted = self._own[name] if value == self._shown(name) else knob.told(value)
        if knob.get() != wanted:
            knob.put(wanted)
        if wanted == self._own[name]:
            self._put.pop(name, None)
        else:
            self._put[name] = knob.get()

    def _put_back(self, name: str, knob: Knob) -> None:
        put = self._put.pop(name, _NOTHING)
        if put is not _NOTHING and knob.put is not None and knob.get() == put:
            knob.put(self._own[name])

    def _shown(self, name: str) -> ControlValue | None:
        if name not in self._own:
            return None
        value = self.knobs[name].shown(self._own[name])
        try:
            check_value(name, value)
        except ControlError:
            return None
        return value


_NOTHING = object()
