"""What the tables of a TOML file have in common: what they are made of, and how their mistakes are told."""

from __future__ import annotations

from collections.abc import Container
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, ValidationError, WrapValidator
from pydantic_core import ErrorDetails, PydanticCustomError

Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
"""Of a random generator; torch takes no larger ones."""


class Section(BaseModel):
    """A table of the TOML file."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


def one_of(wanted: str) -> WrapValidator:
    """One error for a union, where pydantic has one for each of its members."""

    def check(value: Any, union: Any) -> Any:
        try:
            return union(value)
        except ValidationError as error:
            raise PydanticCustomError("one_of", "Input should be {wanted}", {"wanted": wanted}) from error

    return WrapValidator(check)


ControlSetting = Annotated[bool | float | str, one_of("true or false, a number, or a word")]
"""What a control may be set to; which of it, the control says."""


def kind_or(default: str) -> Discriminator:
    """Tell tables apart by their `kind`; one without it is the `default`."""

    def kind(table: Any) -> str:
        return str(table.get("kind", default) if isinstance(table, dict) else getattr(table, "kind", default))

    return Discriminator(kind)


def mistakes(error: ValidationError) -> list[ErrorDetails]:
    """The problems that are the user's: a list whose entries are no good is told to be empty beside them."""
    found = error.errors()
    places = [problem["loc"] for problem in found]

    def is_within(place: tuple[Any, ...], outer: tuple[Any, ...]) -> bool:
        return place != outer and place[: len(outer)] == outer

    return [
        problem
        for problem in found
        if problem["type"] != "too_short" or not any(is_within(place, problem["loc"]) for place in places)
    ]


def told(problem: ErrorDetails, hidden: Container[Any] = ()) -> str:
    """One line that begins with the field's name, in which `hidden` parts of the place are left out."""
    field = ".".join(str(part) for part in problem["loc"] if part not in hidden)
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] != "value_error":
        return f"{field}: {message} (given {problem['input']!r})"
    if isinstance(problem["input"], dict):  # a table's own check names the field in it
        return f"{field}.{message}" if field else message
    return f"{field}: {message}"
