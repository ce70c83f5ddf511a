"""From judged runs to scores: how late what fails is seen, and how often what does not is called failing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.api.backtest.rates import Delay, Rate, delay, rate
from trimtab.api.backtest.scenarios import SCENARIOS, Label
from trimtab.api.backtest.trials import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """How a failing scenario is seen, at one onset."""

    scenario: str
    title: str
    onset: int
    delay: Delay
    bar: int | None
    """Steps within which every run is to be seen; None where nothing was promised."""
    met: bool | None
    """Whether the worst delay is within the bar; None without one."""
    seen_by: dict[str, int]
    """First alerts by detector."""
    most_alerts: int
    """Incidents that one run raised, at most; on a fault of one step, up to ten steps after the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """How silent the runs of a scenario are to which no harm is done."""

    scenario: str
    title: str
    label: Label
    runs: int
    rate: Rate
    by_detector: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What a configuration of the detectors is worth on drawn runs."""

    detections: tuple[Detection, ...]
    quiet: tuple[Quiet, ...]
    false_alarms: Rate
    """Over every healthy run, all detectors together."""
    by_detector: dict[str, Rate]
    """The same of each detector that raised any."""

    @property
    def missed_bars(self) -> list[str]:
        """Scenarios whose bar is not met, at one onset at least."""
        return list(dict.fromkeys(one.scenario for one in self.detections if one.met is False))


def scored(trials: Sequence[Trial]) -> Scores:
    """The scores of runs that were judged under one configuration."""
    of = {name: [trial for trial in trials if trial.scenario == name] for name in SCENARIOS}
    detections, quiet = [], []
    for name, scenario in SCENARIOS.items():
        if not of[name]:
            continue
        if scenario.label is Label.FAILING:
            for onset in sorted({trial.onset for trial in of[name]}):
                detections.append(_detection(name, onset, [trial for trial in of[name] if trial.onset == onset]))
        else:
            quiet.append(_quiet(name, of[name]))
    healthy = [trial for trial in trials if SCENARIOS[trial.scenario].label is Label.HEALTHY]
    return Scores(
        detections=tuple(detections),
        quiet=tuple(quiet),
        false_alarms=_rate(healthy),
        by_detector={what: _rate(healthy, what) for what in _counted(healthy)},
    )


def _detection(name: str, onset: int, trials: Sequence[Trial]) -> Detection:
    scenario = SCENARIOS[name]
    found = delay([trial.delay for trial in trials])
    met = None if scenario.bar is None else found.worst is not None and found.worst <= scenario.bar
    return Detection(
        scenario=name,
        title=scenario.title,
        onset=onset,
        delay=found,
        bar=scenario.bar,
        met=met,
        seen_by=dict(Counter(trial.alerts[0].what for trial in trials if trial.alerts).most_common()),
        most_alerts=max(len(trial.alerts) for trial in trials),
    )


def _quiet(name: str, trials: Sequence[Trial]) -> Quiet:
    scenario = SCENARIOS[name]
    return Quiet(
        scenario=name,
        title=scenario.title,
        label=scenario.label,
        runs=len(trials),
        rate=_rate(trials),
        by_detector=_counted(trials),
    )


def _counted(trials: Sequence[Trial]) -> dict[str, int]:
    return dict(Counter(alert.what for trial in trials for alert in trial.alerts).most_common())


def _rate(trials: Sequence[Trial], what: str | None = None) -> Rate:
    alarms = [sum(what in (None, alert.what) for alert in trial.alerts) for trial in trials]
    return rate(alarms, [trial.steps for trial in trials])
