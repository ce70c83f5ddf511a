"""Ingest: step summaries in, what the agent wants of their jobs out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from http import HTTPStatus
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import Field
from sqlalchemy.exc import DBAPIError

from trimtab.api.bodies import body_of
from trimtab.api.folding import Input
from trimtab.api.ingest import Answer
from trimtab.api.problem import CONFLICT, ApiError, Problem, Problems, named, problems_of, unanswered
from trimtab.api.reported import MAX_BATCH, MAX_SUMMARY, summaries_in, summary_in
from trimtab.api.routes.common import check_job, origin_of
from trimtab.api.service import Service, Taken, ingested
from trimtab.api.views import View
from trimtab.hooks.records import Command, RecordError, StepSummary
from trimtab.storage.store import ConflictError
from trimtab.storage.values import Origin


class _Plain(APIRoute):
    """A route whose function takes the request and gives the response, with nothing of the framework's in between: half
    of what a summary would cost otherwise."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The function itself."""
        handler: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return handler


router = APIRouter(tags=["summaries"], route_class=_Plain)
PATH = "/v1/summaries"
BATCH_PATH = "/v1/summaries/batch"

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


class IngestAnswer(View):
    """What became of the summary, and the command."""

    result: Taken
    reason: str = Field(description="Why the summary is ignored; empty where it is not.")
    command: Command | None
    """The desired overrides while the job's reported generation differs from theirs, else null."""


class BatchItem(View):
    """What became of one summary of a batch."""

    result: Taken | Literal["conflict", "invalid", "failed"]
    reason: str = Field(description="Why the summary is ignored; empty where it is not.")
    errors: list[Problem] = Field(description="What is wrong with it; empty where nothing is.")


class BatchAnswer(View):
    """What became of each summary, in their order, and the newest command for each job."""

    results: list[BatchItem]
    commands: dict[str, Command | None]


ENCODED: dict[int | str, dict[str, Any]] = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: {"model": Problems, "description": "The body is too large; send less."},
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: {"model": Problems, "description": "The body is in an unknown encoding."},
    HTTPStatus.SERVICE_UNAVAILABLE: {
        "model": Problems,
        "description": "The database does not answer, or too many summaries wait; keep it and send it again.",
    },
}


def _body(schema: dict[str, Any], example: Any) -> dict[str, Any]:
    """How a body is described that is read here and not by the framework."""
    return {
        "required": True,
        "content": {"application/json": {"schema": schema, "examples": {"one": {"value": example}}}},
    }


_ONE: dict[str, Any] = {"$ref": "#/components/schemas/ReportedSummary"}
_MANY = {"type": "array", "items": _ONE, "maxItems": MAX_BATCH}


@router.post(
    PATH,
    response_model=IngestAnswer,
    responses={**CONFLICT, **ENCODED},
    openapi_extra={"requestBody": _body(_ONE, EXAMPLE)},
    summary="Report one training step",
)
async def ingest_summary(request: Request) -> Response:
    """Take the summary of one step of one rank.

    The key is (job, attempt, step, rank). The same summary again changes nothing and gets the current command; another
    one under the same key gets 409, and the first stays. A job that is not known yet is registered in mode `observe`.
    A summary that cannot be judged any more, such as one of an older attempt, is kept in the ledger and answered with
    `ignored`. Keys that this version does not know are ignored. The body may be compressed (`gzip`, `zstd`).
    """
    app = request.app.state
    summary = summary_in(await body_of(request, MAX_SUMMARY))
    check_job(request, summary.job)
    with app.metrics.ingest() as count:
        (stored,) = await app.queue.put([app.service.summary_input(summary, origin=origin_of(request))])
        if isinstance(stored, Exception):
            raise stored
        answer = ingested(stored)
        count(answer.result)
    told = IngestAnswer(result=answer.result, reason=answer.reason, command=answer.command)
    return Response(told.model_dump_json(), media_type="application/json")


@router.post(
    BATCH_PATH,
    response_model=BatchAnswer,
    responses=ENCODED,
    openapi_extra={"requestBody": _body(_MANY, [EXAMPLE])},
    summary="Report several training steps",
)
async def ingest_batch(request: Request) -> Response:
    """Take the summaries of several steps, of one job or of many, in their order.

    Each is taken or refused for itself, as if it had come alone, and the answer says what became of it; so the status
    is 200 unless the body is no list at all. The body may be compressed (`gzip`, `zstd`).
    """
    app = request.app.state
    origin, items = origin_of(request), summaries_in(await body_of(request))
    inputs = [_input(request, app.service, item, origin) for item in items]
    with app.metrics.ingest() as count:
        stored = iter(await app.queue.put([one for one in inputs if isinstance(one, Input)]))
        answers = [next(stored) if isinstance(one, Input) else one for one in inputs]
        results = [_item(answer) for answer in answers]
        for result in results:
            count(result.result)
    told = BatchAnswer(results=results, commands=_commands(inputs, answers))
    return Response(told.model_dump_json(), media_type="application/json")


def _input(
    request: Request, service: Service, item: StepSummary | RequestValidationError, origin: Origin
) -> Input | Exception:
    if isinstance(item, Exception):
        return item
    try:
        check_job(request, item.job)
        return service.summary_input(item, origin=origin)
    except (ApiError, RecordError) as error:
        return error


def _commands(inputs: Sequence[Input | Exception], answers: Sequence[Answer]) -> dict[str, Command | None]:
    """What each job's trainer is told: as of its last summary that is answered with what is wanted.

    One of another rank or of an attempt that is over is never told anything: that is no word of there being nothing.
    """
    commands: dict[str, Command | None] = {}
    for one, answer in zip(inputs, answers, strict=True):
        if not isinstance(one, Input) or isinstance(answer, Exception):
            continue
        record, outcome = one.record, answer[1]
        if isinstance(record, StepSummary) and record.rank == 0 and record.attempt >= outcome.state.attempt:
            commands[one.job] = outcome.command
        else:
            commands.setdefault(one.job, None)
    return commands


def _item(answer: Answer) -> BatchItem:
    if not isinstance(answer, Exception):
        taken = ingested(answer)
        return BatchItem(result=taken.result, reason=taken.reason, errors=[])
    if isinstance(answer, RequestValidationError):
        return BatchItem(result="invalid", reason="", errors=problems_of(answer))
    result: Literal["conflict", "invalid", "failed"] = "failed"
    if isinstance(answer, ConflictError):
        result = "conflict"
    elif isinstance(answer, (ApiError, RecordError)):
        result = "invalid"
    if isinstance(answer, ApiError):
        problems = answer.problems
    else:
        problems = (unanswered(answer) if isinstance(answer, DBAPIError) else named(str(answer)),)
    return BatchItem(result=result, reason="", errors=list(problems))
