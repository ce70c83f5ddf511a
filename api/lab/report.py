"""A lab's report: one HTML file that needs nothing else, with the tables and plots in it.

What a person wrote (titles, notes, error messages, the lab's file) is escaped wherever it stands.
"""

from __future__ import annotations

import base64
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from typing import Any

import trimtab
from trimtab.api.lab.cells import Lab
from trimtab.api.lab.tables import MEASURES, Row

STYLE = """
:root { --line: #e5e7eb; --dim: #6b7280; --mark: #0f766e; }
body { font: 14px/1.5 system-ui, sans-serif; color: #111827; margin: 2rem auto; max-width: 1500px; padding: 0 1.5rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
p { max-width: 110ch; } .spread { color: var(--dim); font-size: 12px; }
.beside { display: flex; gap: 2rem; align-items: flex-start; flex-wrap: wrap; }
.dim { color: var(--dim); } .wide { overflow-x: auto; }
.note { border-left: 3px solid var(--mark); padding: .3rem .9rem; background: #f0fdfa; }
.failed { border-left: 3px solid #dc2626; padding: .3rem .9rem; background: #fef2f2; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { text-align: right; font-weight: 600; font-size: 12px; vertical-align: bottom; color: #374151; }
th, td { padding: .25rem .5rem; border-bottom: 1px solid var(--line); } td { text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } tbody tr:hover { background: #f9fafb; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; max-width: 95ch; } dt { font-weight: 600; }
dd { margin: 0; color: #374151; } img { max-width: 100%; } details { margin: .8rem 0; } summary { cursor: pointer; }
pre { background: #f9fafb; border: 1px solid var(--line); padding: .8rem; overflow-x: auto; font-size: 12px; }
"""
PLOTS = {
    "reward": ("Reward", "grey: the same without a correction"),
    "entropy": ("Entropy", "grey: the same without a correction"),
    "ratio_quantiles": (
        "Log-ratio by advantage sign",
        "5 % and 95 % quantiles of the log-ratio that the loss clips, over tokens of negative (red) and positive "
        "(blue) advantage; dashed: the 5 % quantile of the BF16 twin, A < 0",
    ),
}
"""Heading, and what there is to see, of each plot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLadder:
    """A precision ladder, its plot with it."""

    title: str
    rungs: Sequence[Mapping[str, Any]]
    plot: bytes


def html(
    lab: Lab,
    table: Sequence[Row],
    plots: Mapping[str, bytes],
    ladders: Sequence[MeasuredLadder],
    failed: Mapping[str, str],
) -> str:
    """The whole report."""
    title = lab.file.title or lab.name
    body = "".join(
        (
            f"<h1>{escape(title)}</h1>",
            f'<p class="dim">{escape(_counted(lab, table))}</p>',
            f'<p class="note">What was done to the runs: {escape(lab.file.note)}</p>' if lab.file.note else "",
            _failures(failed),
            _results(table),
            *(_plot(*PLOTS[name], image, table) for name, image in plots.items() if table),
            *(_ladder(ladder, alone=len(ladders) == 1) for ladder in ladders),
            _setup(lab),
        )
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>{body}</body></html>\n'
    )


def _counted(lab: Lab, table: Sequence[Row]) -> str:
    done = sum(len(row.members) for row in table)
    seconds = sum(member.seconds or 0.0 for row in table for member in row.members)
    return f"{done} of {len(lab.cells)} runs, {seconds / 60:.1f} minutes of one core"


def _failures(failed: Mapping[str, str]) -> str:
    if not failed:
        return ""
    lines = "".join(f"<li>{escape(name)}: {escape(error)}</li>" for name, error in failed.items())
    return f'<div class="failed">{len(failed)} failed, and are missing below:<ul>{lines}</ul></div>'


def _results(table: Sequence[Row]) -> str:
    headings = ["", "seeds", *(measure.heading for measure in MEASURES)]
    body = [[row.label, str(len(row.members)), *(row.told(measure) for measure in MEASURES)] for row in table]
    meanings = "".join(f"<dt>{escape(one.heading)}</dt><dd>{escape(one.meaning)}</dd>" for one in MEASURES)
    seeds = [_seeds(row) for row in table]
    width = max((len(line) for line in seeds), default=1)
    seeds = [[*line, *[""] * (width - len(line))] for line in seeds]
    return (
        f"<h2>Results</h2>{_table(headings, body)}"
        f"<details><summary>What the columns mean</summary><dl>{meanings}</dl></details>"
        "<details><summary>Seed by seed: reward, and BF16 evaluation; first step of a collapse</summary>"
        f"{_table([''] * width, seeds)}</details>"
    )


def _seeds(row: Row) -> list[str]:
    line = [row.label]
    for member in row.members:
        evaluated = "-" if member.reward_eval_bf16 is None else f"{member.reward_eval_bf16:.3f}"
        onset = "" if member.onset_step is None else f"; {member.onset_step}"
        line.append(f"s{member.cell.seed}: {member.reward_final:.3f}, {evaluated}{onset}")
    return line


def _plot(title: str, seen: str, image: bytes, table: Sequence[Row]) -> str:
    several = any(len(row.members) > 1 for row in table)
    band = "line and band: mean and one standard deviation over the seeds; " if several else ""
    told = escape(f"A panel for each run; {band}{seen}.")
    return f'<h2>{escape(title)}</h2><p class="dim">{told}</p>{_image(title, image)}'


def _ladder(ladder: MeasuredLadder, *, alone: bool) -> str:
    headings = ["sampler", "std of log p - log q", "largest", "mismatch KL", "reward"]
    body = [
        [
            str(rung["format"]),
            f"{rung['std']:.4f}",
            f"{rung['largest']:.2f}",
            f"{rung['mismatch_kl']:.1e}",
            f"{rung['reward']:.3f}",
        ]
        for rung in ladder.rungs
    ]
    of = "" if alone or not ladder.title else f": {ladder.title}"
    return (
        f"<h2>Precision ladder at the start{escape(of)}</h2>"
        '<p class="dim">The same weights sampled in each format, against a BF16 forward pass.</p>'
        f'<div class="beside">{_image("precision ladder", ladder.plot)}{_table(headings, body)}</div>'
    )


def _setup(lab: Lab) -> str:
    facts = [
        ("trimtab", trimtab.__version__),
        ("Python", platform.python_version()),
        *((name, version(name)) for name in ("torch", "numpy")),
        ("machine", platform.machine()),
        ("cores", str(os.cpu_count())),
    ]
    told = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    first = lab.cells[0]
    whole = escape(json.dumps(json.loads(first.config.model_dump_json()), indent=2))
    return (
        f"<h2>Set-up</h2><dl>{told}</dl>"
        f"<details open><summary>The lab's file</summary><pre>{escape(lab.text)}</pre></details>"
        f"<details><summary>The first cell, {escape(first.name)}, whole</summary><pre>{whole}</pre></details>"
    )


def _table(headings: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    lines = "".join("<tr>" + "".join(f"<td>{_spread(cell)}</td>" for cell in line) + "</tr>" for line in body)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def _spread(cell: str) -> str:
    """A table's cell, the standard deviation on a line of its own."""
    mean, sign, deviation = cell.partition(" ± ")
    return escape(mean) + (f'<br><span class="spread">± {escape(deviation)}</span>' if sign else "")


def _image(what: str, image: bytes) -> str:
    return f'<img alt="{escape(what)}" src="data:image/png;base64,{base64.b64encode(image).decode()}">'
