"""Ingest: one step summary in, what the agent wants of the job out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi import Body as BodyParameter
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from trimtab.api.portable import shown_text
from trimtab.api.problem import CONFLICT, ERRORS
from trimtab.api.routes.common import MetricsOf, ServiceOf, Value
from trimtab.api.service import Taken
from trimtab.api.views import View
from trimtab.hooks.controls import CONTROL_NAMES, ControlError, Controls, ControlValue, check_value, no_such_control
from trimtab.hooks.records import Command, StepSummary

router = APIRouter(tags=["summaries"])
PATH = "/v1/summaries"

EXAMPLE: dict[str, Any] = {
    "job": "cliff-auto",
    "attempt": 1,
    "step": 12,
    "sketches": {
        "update": {"negative": {"bins": [600, 609], "counts": [3, 61], "sums": [-0.2, 0.01, 63.8, 63.6, 0.01]}},
    },
    "negative": {"tokens": 64, "advantage_abs": 40.0, "entropy_tokens": 64, "entropy": 21.5, "entropy_sq": 9.0},
    "scalars": {"reward_mean": 0.93, "loss": -0.004, "grad_norm": "NaN"},
    "applied": {"ratio_reference": "sampler", "sampler_format": "nvfp4"},
    "generation": 0,
    "capabilities": {"controls": {"centering": "live"}, "rollout_logprobs": True, "sampler_head": 4},
}


def _known_names(applied: Any) -> Any:
    """Refuse controls that do not exist, which a record that ignores unknown keys would lose."""
    for name in applied if isinstance(applied, dict) else ():
        if name not in CONTROL_NAMES:
            raise ControlError(no_such_control(shown_text(str(name))))
    return applied


def _possible(overrides: dict[str, ControlValue]) -> dict[str, ControlValue]:
    for name, value in overrides.items():
        check_value(shown_text(name), value)
    return overrides


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedSummary(StepSummary):
    """A step summary as it comes in: keys that a newer hook adds are ignored, at any depth; controls must exist."""

    __pydantic_config__ = ConfigDict(extra="ignore")

    applied: Annotated[Controls, BeforeValidator(_known_names)] = field(default_factory=Controls)
    overrides: Annotated[dict[str, Value], AfterValidator(_possible)] = field(default_factory=dict)


class IngestAnswer(View):
    """What became of the summary, and the command."""

    result: Taken
    reason: str = Field(description="Why the summary is ignored; empty where it is not.")
    command: Command | None
    """The desired overrides while the job's reported generation differs from theirs, else null."""


@router.post(PATH, responses={**ERRORS, **CONFLICT}, summary="Report one training step")
def ingest(
    summary: Annotated[ReportedSummary, BodyParameter(examples=[EXAMPLE])], service: ServiceOf, metrics: MetricsOf
) -> IngestAnswer:
    """Take the summary of one step of one rank.

    The key is (job, attempt, step, rank). The same summary again changes nothing and gets the current command; another
    one under the same key gets 409, and the first stays. A job that is not known yet is registered in mode `observe`.
    A summary that cannot be judged any more, such as one of an older attempt, is kept in the ledger and answered with
    `ignored`. Keys that this version does not know are ignored.
    """
    with metrics.ingest() as counted:
        ingested = service.ingest(summary)
        counted(ingested.result)
    return IngestAnswer(result=ingested.result, reason=ingested.reason, command=ingested.command)
