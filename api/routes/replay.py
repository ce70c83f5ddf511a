"""Replay: what would have come of a job under other settings."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi import Body as BodyParameter
from pydantic import Field, TypeAdapter

from trimtab.agent.checks import ConfigError
from trimtab.agent.config import with_settings
from trimtab.api.problem import ApiError, Problems, named
from trimtab.api.replay_worker import Replayed
from trimtab.api.restore import config_of
from trimtab.api.routes.common import JobName, ServiceOf
from trimtab.api.service import Service
from trimtab.api.views import Body, View
from trimtab.storage.database import Database

router = APIRouter(tags=["jobs"])

MOST_ROWS = 10_000
"""Longest ledger that the service replays; some 10 s."""
TIMEOUT_S = 120.0
BUSY_FOR_S = 10
EXAMPLE = {"settings": {"detectors.mismatch.std_limit": 0.3, "mode": "auto"}}
BUSY: dict[int | str, dict[str, Any]] = {
    HTTPStatus.TOO_MANY_REQUESTS: {"model": Problems, "description": "Another replay is running."}
}
_REPLAYED = TypeAdapter(Replayed)
_log = logging.getLogger("trimtab.api")


class Question(Body):
    """Under which settings."""

    settings: dict[str, Any] = Field(
        default_factory=dict,
        description="By dotted path or nested; those that are not named stay. None at all asks whether this version "
        "makes the same of the ledger as was made of it at the time.",
    )


class ReplayView(View):
    """What would have come of the job."""

    job: str
    settings: dict[str, Any]
    replayed: Replayed


@router.post("/v1/jobs/{job}/replay", responses=BUSY, summary="What if?")
async def replay_job(
    job: JobName,
    question: Annotated[Question, BodyParameter(examples=[EXAMPLE])],
    request: Request,
    service: ServiceOf,
) -> ReplayView:
    """Folds the job's ledger again under other settings and says which decisions would fall away and which would come.
    Nothing is changed. What a trainer reported is what it did under the decisions that were made: how it would have
    gone on under others, no replay knows. One at a time; 422 for a ledger of more than 10,000 rows, which
    `trimtab export` and `trimtab replay` take.
    """
    await asyncio.to_thread(_check, service, job, question.settings)
    lock: asyncio.Lock = request.app.state.replaying
    if lock.locked():
        message = "another replay is running; ask again when it is done"
        raise ApiError(HTTPStatus.TOO_MANY_REQUESTS, "", message, headers={"retry-after": str(BUSY_FOR_S)})
    async with lock:
        answer = await _asked(service.database, job, question.settings)
    if "error" in answer:
        raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "job", answer["error"], job)
    return ReplayView(job=job, settings=question.settings, replayed=_REPLAYED.validate_python(answer))


def _check(service: Service, job: str, settings: dict[str, Any]) -> None:
    known = service.store.job(job)
    if known.rows > MOST_ROWS:
        message = f"has {known.rows} rows in its ledger, and {MOST_ROWS} are replayed at most; use `trimtab replay`"
        raise ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, "job", message, job)
    try:
        with_settings(config_of(job, known.config), settings)
    except ConfigError as error:
        problem = named(str(error), ["settings"])
        raise ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, problem.field, problem.message, problem.value) from error
    except RecursionError:
        message = "nested more deeply than any setting"
        raise ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, "settings", message) from None


async def _asked(database: Database, job: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The worker's answer. Raises `ApiError` (503): it took too long, or failed."""
    url = database.engine.url
    target = url.database if database.dialect == "sqlite" else url.render_as_string(hide_password=False)
    question = json.dumps({"database": target, "job": job, "settings": settings}).encode()
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trimtab.api.replay_worker"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            out, err = await worker.communicate(question)
    except TimeoutError:
        message = f"took longer than {TIMEOUT_S:g} s; export the job and use `trimtab replay`"
        raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "", message) from None
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
    if worker.returncode != 0:
        _log.error("a replay of job %r failed: %s", job, err.decode(errors="replace")[-2000:])
        raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "", "the replay failed; the service's log has the details")
    answer: dict[str, Any] = json.loads(out)
    return answer
