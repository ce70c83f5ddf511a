"""From rows to steps: a step's numbers may come in several rows, and be logged again after a resume.

A step is complete when a row of a later one comes, or when nothing has come for a while. Steps only go forwards within
an attempt. A key that is logged again for an earlier step than before is a resume: a new attempt begins with it. A key
that comes for the first time for a step that is complete already is late: it is told with the step that comes next,
unless that has a value of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trimtab.api.tail.source import Row
from trimtab.api.tail.values import step_of

MOST_KEYS = 8192
"""Keys that are known of a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What a framework counts as steps."""

    step_keys: tuple[str, ...] = ()
    """Keys that tell the step better than the logger does, the first that is there."""
    ahead: tuple[str, ...] = ()
    """Beginnings of keys that are logged on another axis: a row of them alone is of the step that comes next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedStep:
    """The numbers of one step."""

    attempt: int
    step: int
    values: dict[str, float]
    time: float | None = None
    """When the last of them was logged, Unix seconds."""
    whole: bool = True
    """A later step has been logged, or it has been quiet for long enough; else reading ended, or the log began anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """What is known of a log so far; plain data, so that it survives the process."""

    attempt: int
    open: LoggedStep | None = None
    """The step whose rows are coming in."""
    ahead: dict[str, float] = field(default_factory=dict)
    """Values for the step that comes next: of rows on another axis, and those that came late."""
    latest: dict[str, int] = field(default_factory=dict)
    """By key, the newest step that it was logged for in this attempt."""
    closed: int = -1
    """The newest complete step of this attempt."""
    read_at: float = 0.0
    """When the newest row was read, Unix seconds."""
    rows: int = 0
    """Rows taken, of all attempts."""
    late: int = 0
    """Values whose step was complete already."""
    again: int = 0
    """Values that were there already."""
    stepless: int = 0
    """Values that no step could be found for."""

    def taking(self, rows: Iterable[Row], axis: Axis, now: float) -> tuple[Assembly, list[LoggedStep]]:
        """After these rows, and the steps that are complete then."""
        state: Assembly = self
        done: list[LoggedStep] = []
        for row in rows:
            if row.restart:
                state, more = state._begun_again()
            else:
                state, more = state._took(row, axis)
                state = replace(state, rows=state.rows + 1, read_at=now)
            done += more
        return state, done

    def ended(self, *, whole: bool) -> tuple[Assembly, list[LoggedStep]]:
        """With the open step complete, as far as it came; `whole` where no more is to be expected of it."""
        if self.open is None:
            return self, []
        done = replace(self.open, whole=whole)
        return replace(self, open=None, closed=done.step), [done]

    def _begun_again(self) -> tuple[Assembly, list[LoggedStep]]:
        state, done = self.ended(whole=False)
        if state.closed < 0 and not state.latest:
            return state, done
        return replace(state, attempt=state.attempt + 1, closed=-1, latest={}, ahead={}), done

    def _took(self, row: Row, axis: Axis) -> tuple[Assembly, list[LoggedStep]]:
        told = next((row.values[key] for key in axis.step_keys if key in row.values), None)
        step = row.step if told is None else step_of(told)
        values = {key: value for key, value in row.values.items() if key not in axis.step_keys}
        if not values:
            return self, []
        if told is None and axis.ahead and all(key.startswith(axis.ahead) for key in values):
            room = len(self.ahead) < MOST_KEYS
            return (replace(self, ahead={**self.ahead, **values}) if room else self), []
        if step is None:
            return replace(self, stepless=self.stepless + len(values)), []
        if step < max((self.latest.get(key, -1) for key in values), default=-1):
            state, done = self._begun_again()
            state, more = state._put(step, values, row.time)
            return state, [*done, *more]
        return self._put(step, values, row.time)

    def _took_late(self, step: int, values: Mapping[str, float]) -> Assembly:
        fresh = {key: value for key, value in values.items() if self.latest.get(key) != step}
        known = {**self.latest, **dict.fromkeys(fresh, step)} if len(self.latest) < MOST_KEYS else self.latest
        opened, ahead = self.open, self.ahead
        if opened is not None:
            opened = replace(opened, values={**fresh, **opened.values})
        elif len(ahead) < MOST_KEYS:
            ahead = {**ahead, **fresh}
        late, again = self.late + len(fresh), self.again + len(values) - len(fresh)
        return replace(self, open=opened, ahead=ahead, latest=known, late=late, again=again)

    def _put(self, step: int, values: Mapping[str, float], time: float | None) -> tuple[Assembly, list[LoggedStep]]:
        newest = self.closed if self.open is None else max(self.open.step, self.closed)
        if step <= self.closed or step < newest:
            return self._took_late(step, values), []
        done: list[LoggedStep] = []
        before = self.open
        if before is not None and before.step < step:
            done, before = [before], None
        merged = {**self.ahead, **({} if before is None else before.values), **values}
        again = 0 if before is None else sum(key in before.values for key in values)
        known = {**self.latest, **dict.fromkeys(values, step)} if len(self.latest) < MOST_KEYS else self.latest
        times = [each for each in (None if before is None else before.time, time) if each is not None]
        opened = LoggedStep(attempt=self.attempt, step=step, values=merged, time=max(times, default=None))
        closed = done[0].step if done else self.closed
        return replace(self, open=opened, closed=closed, latest=known, ahead={}, again=self.again + again), done
