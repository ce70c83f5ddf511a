"""A lab's TOML file: one base run, and what is varied over it.

Every combination of a format, a correction, a variant of each further axis and a seed is one cell, which is one run.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from trimtab.agent.remedies import REMEDIES
from trimtab.agent.state import Mode
from trimtab.api.errors import UserError
from trimtab.hooks.controls import check_value
from trimtab.trainer.section import ControlSetting, Section, Seed, mistakes, one_of, told

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
"""What can be part of a folder's and of a job's name."""
Name = Annotated[str, Field(pattern=NAME, max_length=40)]
Step = Annotated[int, Field(ge=0, strict=True)]
FIXED_AXES = ("format", "correction")


class LabError(UserError):
    """A lab that cannot be run as it is written; the message names the field, the value and what is allowed."""


def _field(axis: str) -> str:
    return f"{axis}s" if axis in FIXED_AXES else f"axes.{axis}"


def _unique(field: str, values: Iterable[Any]) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{field}: {value!r} is there twice")
        seen.add(value)


class Variant(Section):
    """One value of an axis: what it is called, and what it sets in the run."""

    name: Name
    title: str = ""
    """For people; the name by default."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Fields of the run, as in its TOML file: `set = { controls.sampler_format = "nvfp4", rollout.lag = 2 }`."""

    @field_validator("set")
    @classmethod
    def _has_no_seed(cls, fields: dict[str, Any]) -> dict[str, Any]:
        if "seed" in fields:
            raise ValueError(f"seed: {fields['seed']!r} is overruled by the lab's seeds; leave it out")
        return fields

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.title or self.name


class Correction(Variant):
    """What is done about it: controls from a step on, or an agent on duty."""

    at: Annotated[Step | tuple[Step, ...] | None, one_of("a step from 0 on, or a list of such")] = None
    """Step from which `controls` hold and the agent may act, or several, each of which is a cell; the run's start by
    default."""
    controls: dict[str, ControlSetting] = Field(default_factory=dict)
    agent: Mode = Mode.OBSERVE
    """Mode of the agent for these cells; until `at` it observes."""
    remedies: tuple[str, ...] | None = None
    """Remedies that the agent may use; those that it may by default where None."""
    only: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Axes, by name, and the variants (names or globs) that this goes with; all by default."""

    @property
    def steps(self) -> tuple[int | None, ...]:
        """The values of `at`."""
        return self.at if isinstance(self.at, tuple) else (self.at,)

    @field_validator("controls")
    @classmethod
    def _can_be(cls, controls: dict[str, Any]) -> dict[str, Any]:
        for name, value in controls.items():
            check_value(name, value)
        return controls

    @field_validator("remedies")
    @classmethod
    def _known(cls, remedies: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in remedies or ():
            if name not in REMEDIES:
                raise ValueError(f"{name!r} is none of {', '.join(REMEDIES)}")
        return remedies

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.at is not None and not self.controls and self.agent is Mode.OBSERVE:
            raise ValueError(f"at: {self.at} says when, but there are no controls to change then, and no agent to act")
        _unique("at", [step for step in self.steps if step is not None])
        if self.remedies is not None and self.agent is Mode.OBSERVE:
            raise ValueError(f"remedies: {self.remedies} would change nothing, since agent is {self.agent.value!r}")
        return self


class LabFile(Section):
    """A lab, as it is written.

    >>> LabFile(run={"steps": 10}, seeds=(0, 1)).formats[0].name
    'base'
    """

    title: str = ""
    note: str = ""
    """What is done to the runs, declared with every result."""
    base: str = ""
    """Where the base run comes from: SCENARIO/RUN of the demo, or a run's TOML file, relative to this one; the defaults
    without one."""
    run: dict[str, Any] = Field(default_factory=dict)
    """The tables of a run, over the base."""
    seeds: tuple[Seed, ...] = Field(default=(0,), min_length=1)
    formats: tuple[Variant, ...] = Field(default=(Variant(name="base"),), min_length=1)
    corrections: tuple[Correction, ...] = Field(default=(Correction(name="none"),), min_length=1)
    axes: dict[Name, tuple[Variant, ...]] = Field(default_factory=dict)
    """Further axes by name."""
    ladder: bool = True
    """Measure how far each number format is from BF16 at the start."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _unique("seeds", self.seeds)
        if not isinstance(self.run.get("schedule", []), list):
            raise ValueError(f"run.schedule: {self.run['schedule']!r} is no list of changes")
        if "seed" in self.run:
            raise ValueError(f"run.seed: {self.run['seed']!r} is overruled by seeds; leave it out")
        for axis, variants in self.all_axes().items():
            _unique(_field(axis), [variant.name for variant in variants])
        for axis in self.axes:
            if axis in FIXED_AXES:
                raise ValueError(f"axes.{axis}: the {axis}s have a table of their own; name the axis otherwise")
            if not self.axes[axis]:
                raise ValueError(f"axes.{axis}: has no variant")
        for index, correction in enumerate(self.corrections):
            self._check_only(f"corrections.{index}.only", correction.only)
        return self

    def _check_only(self, field: str, only: dict[str, tuple[str, ...]]) -> None:
        axes = {axis: variants for axis, variants in self.all_axes().items() if axis != "correction"}
        for axis, patterns in only.items():
            if axis not in axes:
                raise ValueError(f"{field}.{axis}: there is no such axis; there are {', '.join(axes)}")
            names = [variant.name for variant in axes[axis]]
            if not patterns:
                raise ValueError(f"{field}.{axis}: is empty; name at least one of {', '.join(names)}, or leave it out")
            for pattern in patterns:
                if not any(fnmatchcase(name, pattern) for name in names):
                    raise ValueError(f"{field}.{axis}: {pattern!r} matches none of {', '.join(names)}")

    def all_axes(self) -> dict[str, tuple[Variant, ...]]:
        """Every axis but the seeds, formats and corrections first."""
        return {"format": self.formats, "correction": self.corrections, **self.axes}


def read_lab(path: Path) -> LabFile:
    """The lab in a TOML file, its own fields checked.

    Raises:
        LabError: it cannot be read, a key is unknown, or a value out of range.
    """
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LabError(f"{path}: {error}") from error
    try:
        return LabFile.model_validate(data)
    except ValidationError as error:
        raise LabError("\n".join(f"{path}: {told(problem)}" for problem in mistakes(error))) from error
