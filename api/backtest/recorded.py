"""Score detectors on recorded runs that a person has labelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.agent.config import AgentConfig, with_settings
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Mode
from trimtab.api.backtest.labels import LabelledRun
from trimtab.api.backtest.rates import Delay, Rate, delay, rate
from trimtab.api.backtest.scenarios import Label
from trimtab.api.backtest.watching import Alert, fired
from trimtab.api.ledgers import recorded_in
from trimtab.api.restore import config_of, fold


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScore:
    """What the detectors make of one run."""

    run: LabelledRun
    steps: int
    """Summaries that were judged."""
    alerts: tuple[Alert, ...]

    @property
    def first(self) -> Alert | None:
        """The first alert that counts: of a failing run, at its cause or after."""
        return next((alert for alert in self.alerts if alert.at >= self.run.cause), None)

    @property
    def false(self) -> tuple[Alert, ...]:
        """Alerts where nothing was wrong: of a healthy run all, of a failing one those before the cause."""
        if self.run.label is Label.EITHER:
            return ()
        healthy = self.run.label is Label.HEALTHY
        return tuple(alert for alert in self.alerts if healthy or alert.at < self.run.cause)

    @property
    def in_time(self) -> bool | None:
        """Whether a failing run was seen before it had lost half of its reward; None of any other."""
        if self.run.label is not Label.FAILING:
            return None
        return self.first is not None and (self.run.half is None or self.first.at < self.run.half)

    @property
    def healthy_steps(self) -> int:
        """Summaries in which nothing was wrong."""
        by_label = {Label.HEALTHY: self.steps, Label.FAILING: self.run.cause, Label.EITHER: 0}
        return by_label[self.run.label]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedScores:
    """What a configuration of the detectors is worth on recorded runs."""

    runs: tuple[RunScore, ...]
    delay: Delay | None
    """From cause to first alert, over the failing runs; None without any."""
    in_time: int
    """Failing runs that were seen before they had lost half of their reward."""
    false_alarms: Rate
    by_detector: dict[str, Rate]
    """False alarms of each detector that raised any."""


def scored_run(
    folder: Path, run: LabelledRun, settings: Mapping[str, Any], watch: Callable[[Iterable[Any]], Iterable[Any]] = iter
) -> RunScore:
    """Judge one recorded run by the default settings with `settings` over them.

    The run's own calibrations are kept, and the commands that it was given are not: its records say what it did.

    Raises:
        LedgerFileError, StorageError, UnknownJobError, UnreadableJobError: the run cannot be read.
        ConfigError: a setting that does not exist, or cannot be.
    """
    recorded = recorded_in(folder / run.file, run.job)
    own = config_of(recorded.job, recorded.config)
    config = with_settings(AgentConfig(mode=Mode.OBSERVE, references=own.references), settings)
    steps, alerts = 0, []
    for outcome in fold(config, RunState.initial(recorded.job, config.mode), watch(recorded.entries)):
        steps = outcome.state.tick
        alerts += fired(outcome)
    return RunScore(run=run, steps=steps, alerts=tuple(alerts))


def scored_runs(runs: Sequence[RunScore]) -> RecordedScores:
    """The scores of runs that were judged under one configuration."""
    failing = [one for one in runs if one.run.label is Label.FAILING]
    delays = [None if one.first is None else one.first.at - one.run.cause for one in failing]
    counted = Counter(alert.what for one in runs for alert in one.false)
    return RecordedScores(
        runs=tuple(runs),
        delay=delay(delays) if delays else None,
        in_time=sum(one.in_time is True for one in failing),
        false_alarms=_rate(runs),
        by_detector={what: _rate(runs, what) for what, _ in counted.most_common()},
    )


def _rate(runs: Sequence[RunScore], what: str | None = None) -> Rate:
    judged = [one for one in runs if one.healthy_steps]
    alarms = [sum(what in (None, alert.what) for alert in one.false) for one in judged]
    return rate(alarms, [one.healthy_steps for one in judged])
