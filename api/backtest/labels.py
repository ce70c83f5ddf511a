"""Recorded runs, and what a person knows of each: the `labels.toml` beside them."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trimtab.api.backtest.scenarios import Label
from trimtab.api.errors import UserError

FILE = "labels.toml"


class LabelsError(UserError):
    """A folder without labels, or labels that cannot be; the message names the file and the field."""


class LabelledRun(BaseModel):
    """One `[[run]]` of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str
    """What `trimtab export` wrote, gzipped or not, or an agent's SQLite file; relative to the folder."""
    job: str | None = None
    """Which job of an SQLite file."""
    label: Label
    format: str = ""
    """Number formats of the run, for people."""
    corrections: str = ""
    """Corrections in force, for people."""
    cause: int = Field(0, ge=0)
    """Summary, from 0, at which what is wrong began."""
    half: int | None = Field(None, ge=0)
    """First summary at which the mean reward of five was below half of its highest so far: alerts are due before."""
    source: str = ""
    """How it was recorded, so that it can be again."""
    note: str = ""
    """Anything else, such as what was left out of the file."""

    @model_validator(mode="after")
    def _agrees(self) -> LabelledRun:
        if self.label is not Label.FAILING and (self.cause or self.half is not None):
            raise ValueError(f"cause, half: only a failing run has them, and {self.file} is {self.label}")
        if self.half is not None and self.half <= self.cause:
            raise ValueError(f"half: {self.half} is not after cause, {self.cause}")
        return self


class _Labels(BaseModel):
    model_config = ConfigDict(extra="forbid")

    run: list[LabelledRun] = Field(min_length=1)


def labelled(folder: Path) -> list[LabelledRun]:
    """The labelled runs of a folder.

    Raises:
        LabelsError: there is no `labels.toml` in it, it is not valid, or a file that it names is not there.
    """
    path = folder / FILE
    try:
        found = _Labels.model_validate(tomllib.loads(path.read_text()))
    except FileNotFoundError:
        raise LabelsError(f"DIR: there is no {path}; it says which run is healthy, see docs/detection.md") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LabelsError(f"{path}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise LabelsError(f"{path}: {where}: {first['msg']}, not {str(first['input'])[:80]!r}") from error
    missing = [one.file for one in found.run if not (folder / one.file).is_file()]
    if missing:
        raise LabelsError(f"{path}: run.file: there is no file {folder / missing[0]}")
    return found.run
