"""What one cell's run came to, read from its own files and from the ledger of its agent."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from sqlalchemy.exc import DBAPIError

from trimtab.agent.signals import MIN_TOKENS, SIGNALS, quantile
from trimtab.agent.state import EventKind, State
from trimtab.api.lab.cell_run import LEDGER, MARK
from trimtab.api.lab.cells import Cell
from trimtab.hooks.records import StepSummary
from trimtab.hooks.sketch import Sign
from trimtab.storage.codec import SUMMARY
from trimtab.storage.database import Database
from trimtab.storage.engine import StorageError
from trimtab.storage.store import Store
from trimtab.storage.values import EntryKind, StoredEvent
from trimtab.trainer.run import RESULT, STEPS

FINAL_STEPS = 20
"""Figures of the end are means over so many last steps."""
EARLY_STEPS = 15
"""Figures of the start are means over so many first steps."""
SMOOTHING = 5
COLLAPSE = 0.6
"""A run has collapsed when its smoothed reward is below this share of its highest so far."""
SPIKE = 5.0
"""A gradient norm above so many times the median of the steps before it is a spike."""
SPIKE_HISTORY = 10
"""Steps before the first that can be one."""

Value = float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One number a step; None where it was not observed."""

    reward: tuple[Value, ...]
    entropy: tuple[Value, ...]
    mismatch_std: tuple[Value, ...]
    q05_negative: tuple[Value, ...]
    """5 % quantile of the clipped log-ratio over negative-advantage tokens, nats."""
    q95_negative: tuple[Value, ...]
    q05_positive: tuple[Value, ...]
    q95_positive: tuple[Value, ...]
    twin_q05_negative: tuple[Value, ...]
    """The first, of the BF16 twin, in steps that have one."""
    clip_negative: tuple[Value, ...]
    """Share of negative-advantage tokens below the lower bound in effect."""
    clip_positive: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One cell in figures."""

    cell: Cell
    reward_final: float
    """Under the run's own sampler."""
    reward_eval_bf16: Value
    reward_eval_sampler: Value
    entropy_final: float
    mismatch_start: Value
    mismatch_final: Value
    clip_negative_early: Value
    clip_positive_early: Value
    gradient_spikes: int
    onset_step: int | None
    """First step of the collapse; None without one."""
    recovered: bool
    """It collapsed, and its last rewards are above that share of its highest again."""
    first_alert_step: int | None
    first_action_step: int | None
    seconds: Value
    series: Series

    @property
    def collapsed(self) -> bool:
        """Whether it ever did."""
        return self.onset_step is not None


class DamagedError(ValueError):
    """A file of a finished lab that cannot be read; the message names it."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise `DamagedError` for whatever the content of the file at `path` is to blame for."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError, StorageError, DBAPIError) as error:
        reason = error.orig if isinstance(error, DBAPIError) else error
        line = " ".join(str(reason).split())
        raise DamagedError(f"{path} cannot be read ({type(error).__name__}: {line})") from error


def figures(cell: Cell, folder: Path) -> Figures:
    """The figures of a cell whose run is done.

    Raises:
        DamagedError: one of its files cannot be read.
    """
    with reading(folder / STEPS):
        steps = _steps(folder / STEPS)
    with reading(folder / LEDGER):
        summaries, events = _ledger(cell, folder / LEDGER)
    with reading(folder / RESULT):
        result = json.loads((folder / RESULT).read_text())
        evaluations = {name: _number(result[name]) for name in ("reward_eval_bf16", "reward_eval_sampler")}
    with reading(folder / MARK):
        seconds = _number(json.loads((folder / MARK).read_text())["seconds"])
    rewards = [step["reward_mean"] for step in steps]
    series = _series(steps, summaries)
    onset, final = collapse(rewards), fmean(rewards[-FINAL_STEPS:])
    return Figures(
        cell=cell,
        reward_final=final,
        reward_eval_bf16=evaluations["reward_eval_bf16"],
        reward_eval_sampler=evaluations["reward_eval_sampler"],
        entropy_final=fmean(step["entropy"] for step in steps[-FINAL_STEPS:]),
        mismatch_start=_mean(series.mismatch_std[:EARLY_STEPS]),
        mismatch_final=_mean(series.mismatch_std[-FINAL_STEPS:]),
        clip_negative_early=_mean(series.clip_negative[:EARLY_STEPS]),
        clip_positive_early=_mean(series.clip_positive[:EARLY_STEPS]),
        gradient_spikes=spikes([step["grad_norm"] for step in steps]),
        onset_step=onset,
        recovered=onset is not None
        and fmean(rewards[-FINAL_STEPS:]) >= COLLAPSE * max(smoothed(rewards)[SMOOTHING - 1 :]),
        first_alert_step=next((event.step for event in events if _alerts(event)), None),
        first_action_step=next((event.step for event in events if event.kind == EventKind.CONTROLS_CHANGED), None),
        seconds=seconds,
        series=series,
    )


def smoothed(values: Sequence[float]) -> list[float]:
    """Mean of each value and the ones before it, `SMOOTHING` in all, or as many as there are."""
    return [fmean(values[max(0, i - SMOOTHING + 1) : i + 1]) for i in range(len(values))]


def collapse(rewards: Sequence[float]) -> int | None:
    """First step at which the mean of `SMOOTHING` rewards is below `COLLAPSE` of its highest so far, or None."""
    highest = -math.inf
    for step, mean in enumerate(smoothed(rewards)):
        if step >= SMOOTHING - 1:
            highest = max(highest, mean)
            if mean < COLLAPSE * highest:
                return step
    return None


def spikes(norms: Sequence[float]) -> int:
    """Steps whose gradient norm is above `SPIKE` times the median of all steps before, or is not finite."""
    count = 0
    for step in range(SPIKE_HISTORY, len(norms)):
        usual = median(norms[:step])
        count += not math.isfinite(norms[step]) or norms[step] > SPIKE * usual
    return count


def _steps(path: Path) -> list[dict[str, Any]]:
    """Each step once, as it was done last: one that was restored is done again."""
    rows = (json.loads(line) for line in path.read_text().splitlines())
    steps = list({row["step"]: _restored(row) for row in rows}.values())
    if not steps:
        raise ValueError("there is no step in it")
    return steps


def _restored(row: dict[str, Any]) -> dict[str, Any]:
    """Non-finite numbers are strings on disk."""
    return {name: float(row[name]) for name in ("reward_mean", "entropy", "grad_norm")} | {"step": row["step"]}


def _number(value: Any) -> Value:
    """Of a file; a number that is not finite is a string there."""
    return None if value is None else float(value)


def _ledger(cell: Cell, path: Path) -> tuple[dict[int, StepSummary], tuple[StoredEvent, ...]]:
    """The newest summary of each step, and the audit trail."""
    store = Store(Database(path, read_only=True))
    try:
        recorded = store.recorded(cell.job)
    finally:
        store.database.close()
    found: dict[int, StepSummary] = {}
    for entry in recorded.entries:
        if entry.kind is EntryKind.SUMMARY:
            summary = SUMMARY.decode(entry.payload)
            if summary.step not in found or found[summary.step].attempt <= summary.attempt:
                found[summary.step] = summary
    return found, recorded.events


def _alerts(event: StoredEvent) -> bool:
    return event.kind == EventKind.VERDICT_CHANGED and event.detail["after"] in (State.WARN, State.CRITICAL)


def _series(steps: Sequence[dict[str, Any]], summaries: dict[int, StepSummary]) -> Series:
    def read(signal: Callable[[StepSummary], Value]) -> tuple[Value, ...]:
        found = (summaries.get(step["step"]) for step in steps)
        return tuple(None if summary is None else signal(summary) for summary in found)

    return Series(
        reward=tuple(step["reward_mean"] for step in steps),
        entropy=tuple(step["entropy"] for step in steps),
        mismatch_std=read(SIGNALS["mismatch_std"]),
        q05_negative=read(SIGNALS["update_q05_negative"]),
        q95_negative=read(SIGNALS["update_q95_negative"]),
        q05_positive=read(SIGNALS["update_q05_positive"]),
        q95_positive=read(SIGNALS["update_q95_positive"]),
        twin_q05_negative=read(_twin_tail),
        clip_negative=read(SIGNALS["clip_fraction_negative"]),
        clip_positive=read(SIGNALS["clip_fraction_positive"]),
    )


def _twin_tail(summary: StepSummary) -> Value:
    found = summary.sketches.get("shadow")
    tokens = None if found is None else found.sign(Sign.NEGATIVE)
    return None if tokens is None or tokens.n < MIN_TOKENS else quantile(tokens, 0.05)


def _mean(values: Sequence[Value]) -> Value:
    seen = [value for value in values if value is not None]
    return fmean(seen) if seen else None
