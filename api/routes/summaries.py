"""Ingest: one step summary in, what the agent wants of the job out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi import Body as BodyParameter
from pydantic import ConfigDict

from trimtab.api.problem import CONFLICT, ERRORS
from trimtab.api.routes.common import MetricsOf, ServiceOf
from trimtab.api.views import View
from trimtab.hooks.records import Command, StepSummary
from trimtab.storage.store import Appended

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictSummary(StepSummary):
    """A step summary in which every unknown key, at any depth, is an error."""

    __pydantic_config__ = ConfigDict(extra="forbid")


class IngestAnswer(View):
    """What became of the summary, and the command."""

    result: Appended
    command: Command | None
    """The desired overrides while the job's reported generation differs from theirs, else null."""


@router.post(PATH, responses={**ERRORS, **CONFLICT}, summary="Report one training step")
def ingest(
    summary: Annotated[StrictSummary, BodyParameter(examples=[EXAMPLE])], service: ServiceOf, metrics: MetricsOf
) -> IngestAnswer:
    """Take the summary of one step of one rank.

    The key is (job, attempt, step, rank). The same summary again changes nothing and gets the current command; another
    one under the same key gets 409, and the first stays. A job that is not known yet is registered in mode `observe`.
    """
    with metrics.ingest() as counted:
        ingested = service.ingest(summary)
        counted(ingested.result)
    return IngestAnswer(result=ingested.result, command=ingested.command)
