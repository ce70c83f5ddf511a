"""Cells of one group as one row: mean and standard deviation over the seeds, and every seed beside it."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from trimtab.api.lab.cells import Lab
from trimtab.api.lab.figures import COLLAPSE, EARLY_STEPS, FINAL_STEPS, SMOOTHING, SPIKE, SPIKE_HISTORY, Figures

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One column."""

    name: str
    """In CSV and JSON: the field of `Figures`."""
    heading: str
    meaning: str
    digits: int = 3
    counted: bool = False
    """How many seeds of how many, instead of a mean."""


MEASURES = (
    Measure(
        name="reward_final",
        heading="reward",
        meaning=f"under the run's own sampler, mean of the last {FINAL_STEPS} steps",
    ),
    Measure(
        name="reward_eval_bf16", heading="BF16 evaluation", meaning="reward of the trained policy, sampled in BF16"
    ),
    Measure(
        name="reward_eval_sampler",
        heading="sampler evaluation",
        meaning="reward of the trained policy, sampled in the run's last sampler format",
    ),
    Measure(
        name="entropy_final",
        heading="entropy, end",
        meaning=f"nats a token, mean of the last {FINAL_STEPS} steps",
    ),
    Measure(
        name="mismatch_start",
        heading="mismatch, start",
        meaning="standard deviation of log p(trainer) - log p(sampler) over sampled tokens, nats, mean of the first "
        f"{EARLY_STEPS} steps",
    ),
    Measure(
        name="mismatch_final",
        heading="mismatch, end",
        meaning=f"the same, mean of the last {FINAL_STEPS} steps",
    ),
    Measure(
        name="clip_negative_early",
        heading="clipped A < 0, start",
        meaning=f"share of negative-advantage tokens below the lower clip bound, mean of the first {EARLY_STEPS} steps",
    ),
    Measure(
        name="clip_positive_early",
        heading="clipped A > 0, start",
        meaning=f"share of positive-advantage tokens above the upper clip bound, mean of the first {EARLY_STEPS} steps",
    ),
    Measure(
        name="gradient_spikes",
        heading="gradient spikes",
        meaning=f"steps whose gradient norm is above {SPIKE:g} times the median of all steps before, from step "
        f"{SPIKE_HISTORY} on",
        digits=1,
    ),
    Measure(
        name="collapsed",
        heading="collapsed",
        meaning=f"seeds whose {SMOOTHING}-step mean of the reward fell below {COLLAPSE:.0%} of its highest so far",
        counted=True,
    ),
    Measure(
        name="recovered",
        heading="recovered",
        meaning=f"of these, seeds whose last {FINAL_STEPS} rewards are above {COLLAPSE:.0%} of the run's highest "
        f"{SMOOTHING}-step mean again",
        counted=True,
    ),
)
"""Columns, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One group."""

    variants: dict[str, str]
    """By axis."""
    at: int | None
    group: str
    label: str
    """The group, in the titles of its variants."""
    members: tuple[Figures, ...]
    """Seed by seed."""

    def values(self, measure: Measure) -> list[float]:
        """Of the seeds that have one."""
        found = (getattr(member, measure.name) for member in self.members)
        return [float(value) for value in found if value is not None]

    def mean(self, measure: Measure) -> float | None:
        """None where no seed has a value."""
        values = self.values(measure)
        return fmean(values) if values else None

    def deviation(self, measure: Measure) -> float | None:
        """Of the sample; None below two values, and where one is not finite."""
        values = self.values(measure)
        return stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else None

    def told(self, measure: Measure) -> str:
        """One cell of a table."""
        if measure.counted:
            return f"{sum(self.values(measure)):.0f} of {len(self.members)}"
        mean, deviation = self.mean(measure), self.deviation(measure)
        if mean is None:
            return "-"
        spread = "" if deviation is None else f" ± {deviation:.{measure.digits}f}"
        return f"{mean:.{measure.digits}f}{spread}"


def rows(lab: Lab, results: Sequence[Figures]) -> list[Row]:
    """One for each group, in the order of the lab's file."""
    titles = {
        axis: {variant.name: variant.label for variant in variants} for axis, variants in lab.file.all_axes().items()
    }
    groups: dict[str, list[Figures]] = {}
    for result in results:
        groups.setdefault(result.cell.group, []).append(result)
    found = []
    for group, members in groups.items():
        cell = members[0].cell
        labels = {axis: titles[axis][name] for axis, name in cell.variants.items()}
        if cell.at is not None:
            labels["correction"] += f", at step {cell.at}"
        kept = [label for axis, label in labels.items() if len(titles[axis]) > 1] or list(labels.values())
        found.append(
            Row(
                variants=dict(cell.variants),
                at=cell.at,
                group=group,
                label=" / ".join(kept),
                members=tuple(members),
            )
        )
    return found


def markdown(table: Sequence[Row], failed: Mapping[str, str]) -> str:
    """Means and deviations, what failed, then every seed."""
    headings = ["run", "seeds", *(measure.heading for measure in MEASURES)]
    means = [[row.label, str(len(row.members)), *(row.told(measure) for measure in MEASURES)] for row in table]
    seeds = [[row.label, *(_seed(member, _told) for member in row.members)] for row in table]
    width = max((len(line) for line in seeds), default=1)
    seeds = [[*line, *[""] * (width - len(line))] for line in seeds]
    parts = (
        _lines(headings, means),
        *([f"{len(failed)} failed, and are missing above:", _listed(failed)] if failed else []),
        "Seed by seed: reward, and BF16 evaluation.",
        _lines(["run", *[""] * (width - 1)], seeds),
        "\n".join(f"- {measure.heading}: {measure.meaning}" for measure in MEASURES),
    )
    return "\n\n".join(parts) + "\n"


def _listed(failed: Mapping[str, str]) -> str:
    return "\n".join(f"- {name}: {' '.join(error.split())}" for name, error in failed.items())


def _told(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _seed(member: Figures, told: Callable[[float | None], str]) -> str:
    return f"s{member.cell.seed}: {told(member.reward_final)}, {told(member.reward_eval_bf16)}"


def _lines(headings: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def comma_separated(table: Sequence[Row]) -> str:
    """A line for each seed, then one each for mean and deviation; empty where there is no value."""
    out = io.StringIO()
    axes = list(table[0].variants) if table else []
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [*axes, "at", "seed", *(measure.name for measure in MEASURES), "first_alert_step", "first_action_step"]
    )
    for row in table:
        group = [*row.variants.values(), "" if row.at is None else row.at]
        for member in row.members:
            values = [getattr(member, measure.name) for measure in MEASURES]
            line = [*values, member.first_alert_step, member.first_action_step]
            writer.writerow([*group, member.cell.seed, *("" if value is None else _plain(value) for value in line)])
        for what, statistic in (("mean", row.mean), ("sd", row.deviation)):
            numbers = [statistic(measure) for measure in MEASURES]
            writer.writerow([*group, what, *("" if value is None else value for value in numbers), "", ""])
    return out.getvalue()


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def as_json(lab: Lab, table: Sequence[Row], failed: Mapping[str, str]) -> str:
    """Everything that the tables say, and the cells that failed."""
    content = {
        "schema": SCHEMA,
        "lab": lab.name,
        "note": lab.file.note,
        "rows": [
            {
                **row.variants,
                "at": row.at,
                "mean": {measure.name: _finite(row.mean(measure)) for measure in MEASURES},
                "sd": {measure.name: _finite(row.deviation(measure)) for measure in MEASURES},
                "seeds": {str(member.cell.seed): _member(member) for member in row.members},
            }
            for row in table
        ],
        "failed": dict(failed),
    }
    return json.dumps(content, indent=2, allow_nan=False)


def _member(member: Figures) -> dict[str, Any]:
    names = [measure.name for measure in MEASURES]
    names += ["onset_step", "first_alert_step", "first_action_step", "seconds"]
    return {name: _finite(getattr(member, name)) for name in names}


def _finite(value: Any) -> Any:
    """A float that is none in JSON as a string."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
