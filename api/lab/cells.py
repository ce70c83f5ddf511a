"""The cells of a lab: every run, built and checked before the first one starts."""

from __future__ import annotations

import hashlib
import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from trimtab.agent.config import AgentConfig, with_settings
from trimtab.agent.state import Mode
from trimtab.api.lab.file import Correction, LabError, LabFile, Variant, read_lab
from trimtab.trainer.build import check
from trimtab.trainer.calibrate import clip_calibration
from trimtab.trainer.config import ConfigError, RunConfig, validated
from trimtab.trainer.scenarios import SCENARIOS


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of a lab.

    >>> Cell(variants={"format": "nvfp4", "correction": "mis"}, at=8, seed=2, config=RunConfig()).name
    'nvfp4/mis@8/s2'
    """

    variants: Mapping[str, str]
    """Name of its variant by axis, formats and corrections first."""
    at: int | None
    """Step at which its correction begins: the first with other controls, and the first after which the agent may
    change them; None from the start."""
    seed: int
    config: RunConfig
    mode: Mode = Mode.OBSERVE
    remedies: tuple[str, ...] | None = None

    @property
    def group(self) -> str:
        """Its name without the seed: cells of one group are the same but for chance."""
        parts = dict(self.variants)
        if self.at is not None:
            parts["correction"] += f"@{self.at}"
        return "/".join(parts.values())

    @property
    def name(self) -> str:
        """What it is called, and its folder within the lab's."""
        return f"{self.group}/s{self.seed}"

    @property
    def job(self) -> str:
        """Its name at its agent."""
        return self.name.replace("/", ".").replace("@", "-at-")

    @property
    def agent(self) -> AgentConfig:
        """Settings of its agent."""
        return with_settings(AgentConfig(), {} if self.remedies is None else {"policy.allow": list(self.remedies)})

    def mode_at(self, step: int) -> Mode:
        """Mode of its agent at the end of a step."""
        return Mode.OBSERVE if self.at is not None and step < self.at else self.mode

    @property
    def key(self) -> str:
        """Digest of everything that it depends on: a cell of another key is another run."""
        acts_from = None if self.mode is Mode.OBSERVE else self.at or 0
        told = [self.config.model_dump_json(), self.mode.value, self.remedies, acts_from]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A lab that can be run."""

    name: str
    text: str
    """Its file, as it was written."""
    file: LabFile
    cells: tuple[Cell, ...]

    def chosen(self, pattern: str) -> tuple[Cell, ...]:
        """The cells whose name matches a glob.

        Raises:
            LabError: none does.
        """
        found = tuple(cell for cell in self.cells if fnmatchcase(cell.name, pattern))
        if not found:
            raise LabError(f"--only: {pattern!r} matches no cell; they are called like {self.cells[0].name}")
        return found


def load_lab(path: Path) -> Lab:
    """The lab in a TOML file, whole: every cell's run is built, and checked against its model.

    Raises:
        LabError: it is not valid, or one of its runs is not; the message names the field and the cell.
    """
    file = read_lab(path)
    lab = Lab(name=path.stem, text=path.read_text(), file=file, cells=tuple(_cells(file, path)))
    if not lab.cells:
        raise LabError(f"{path}: corrections: none goes with any combination of the axes, by their `only`")
    _refuse_twins(lab.cells)
    checked = set()
    for cell in lab.cells:
        setup = cell.config.model_copy(update={"seed": 0}).model_dump_json()
        if setup not in checked:
            try:
                check(cell.config)
                clip_calibration(cell.config)
            except ConfigError as error:
                raise LabError(f"{path}: {cell.name}: {error}") from error
            checked.add(setup)
    return lab


def _cells(file: LabFile, path: Path) -> Iterator[Cell]:
    base = merged(_base(file.base, path), file.run)
    for chosen in itertools.product(*file.all_axes().values()):
        variants = dict(zip(file.all_axes(), chosen, strict=True))
        correction = variants["correction"]
        assert isinstance(correction, Correction)
        if _goes_with(correction, variants):
            for at, seed in itertools.product(correction.steps, file.seeds):
                yield _cell(base, variants, correction, at, seed, path)


def _goes_with(correction: Correction, variants: Mapping[str, Variant]) -> bool:
    return all(
        any(fnmatchcase(variants[axis].name, pattern) for pattern in patterns)
        for axis, patterns in correction.only.items()
    )


def _cell(
    base: dict[str, Any], variants: Mapping[str, Variant], correction: Correction, at: int | None, seed: int, path: Path
) -> Cell:
    data = base
    for variant in variants.values():
        data = merged(data, variant.set)
    data = {**data, "seed": seed}
    if correction.controls:
        change = {"step": at or 0, "controls": correction.controls}
        data["schedule"] = [*data.get("schedule", ()), change]
    names = {axis: variant.name for axis, variant in variants.items()}
    cell = Cell(
        variants=names, at=at, seed=seed, config=RunConfig(), mode=correction.agent, remedies=correction.remedies
    )
    try:
        config = validated(data)
    except ConfigError as error:
        raise LabError("\n".join(f"{path}: {cell.name}: {line}" for line in str(error).splitlines())) from error
    if at is not None and at >= config.steps:
        raise LabError(f"{path}: {cell.name}: at: {at} is not before the end, steps = {config.steps}")
    return replace(cell, config=config)


def _refuse_twins(cells: Sequence[Cell]) -> None:
    runs: dict[str, str] = {}
    jobs: dict[str, str] = {}
    for cell in cells:
        if cell.key in runs:
            raise LabError(f"{cell.name}: is the same run as {runs[cell.key]}; what is set makes no difference")
        if cell.job in jobs:
            raise LabError(f"{cell.name}: would report under the same name as {jobs[cell.job]}, {cell.job}; rename one")
        runs[cell.key] = jobs[cell.job] = cell.name


def _base(base: str, path: Path) -> dict[str, Any]:
    """The base run as plain data."""
    if not base:
        return {}
    if base.endswith(".toml"):
        try:
            return tomllib.loads((path.parent / base).read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise LabError(f"{path}: base: {base}: {error}") from error
    known = {f"{scenario.name}/{run.name}": run.config for scenario in SCENARIOS.values() for run in scenario.runs}
    if base not in known:
        raise LabError(f"{path}: base: {base!r} is no TOML file and none of {', '.join(known)}")
    return _plain(known[base])


def _plain(config: RunConfig) -> dict[str, Any]:
    """A run as data to lay other data over: controls that are as they would be anyway are left out, so that presets
    which are laid over it still count."""
    data = config.model_dump()
    neutral = RunConfig().model_dump()["controls"]
    data["controls"] = {name: value for name, value in data["controls"].items() if value != neutral[name]}
    return data


def merged(below: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key, anything else is replaced; a table of another `kind` replaces the whole table."""
    result = dict(below)
    for name, value in over.items():
        old = result.get(name)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        if both and value.get("kind", old.get("kind")) == old.get("kind"):  # type: ignore[union-attr]
            result[name] = merged(old, value)  # type: ignore[arg-type]
        else:
            result[name] = value
    return result
