"""What every answer and every request has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    """An answer: frozen, and NaN is a string in it."""

    model_config = ConfigDict(ser_json_inf_nan="strings", frozen=True)


class Body(BaseModel):
    """A request: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)
