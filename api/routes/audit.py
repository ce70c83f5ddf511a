"""The audit log: everything that was done, by whom, in a chain that shows where it was tampered with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import Field

from trimtab.api.problem import MALFORMED
from trimtab.api.routes.common import DoormanOf
from trimtab.api.routes.paging import PAGE, Limit, LongCursorOf, Page, paged
from trimtab.api.views import View
from trimtab.hooks.records import MAX_JOB_LENGTH
from trimtab.storage.audit import Link, line

router = APIRouter(tags=["access"])

LINES = "application/x-ndjson"


class AuditEntry(View):
    """One thing that was done."""

    number: int = Field(description="From 1, without gaps.")
    at: float = Field(description="Unix seconds.")
    actor: str = Field(description="Name of the token; `local` for whoever is on the machine, `agent` for the agent.")
    token: str = Field(description="Id of the token; empty without one.")
    ip: str
    action: str
    job: str | None
    reason: str
    generation: int | None = Field(description="Of the job's desired controls, where a new one was made.")
    detail: dict[str, Any] = Field(description="`before` and `after`, where something was changed, and what was asked.")
    previous: str = Field(description="Hash of the row before.")
    hash: str = Field(description="SHA-256 of the canonical JSON of all the rest.")


class AuditPage(Page):
    """A stretch of the log, ascending."""

    entries: list[AuditEntry]


@router.get("/v1/audit", responses=MALFORMED, summary="What was done, and by whom")
def list_audit(
    doorman: DoormanOf,
    cursor: LongCursorOf = None,
    limit: Limit = PAGE,
    job: Annotated[str | None, Query(max_length=MAX_JOB_LENGTH, description="Only what was done to this job.")] = None,
) -> AuditPage:
    """Every action of a person, every command of the agent, and every token that was refused."""
    found = doorman.audit.page(after=cursor or 0, limit=limit + 1, job=job)
    links, after = paged(found, limit, lambda link: link.number)
    return AuditPage(entries=list(map(_entry, links)), next=after)


@router.get(
    "/v1/audit.jsonl",
    response_class=StreamingResponse,
    responses={200: {"content": {LINES: {}}, "description": "One entry a line, ascending."}},
    summary="The whole log as JSON lines",
)
def export_audit(doorman: DoormanOf) -> StreamingResponse:
    """For `trimtab audit verify --file`, and for keeping elsewhere."""

    def lines() -> Iterator[str]:
        for link in doorman.audit.links():
            yield line(link) + "\n"

    return StreamingResponse(lines(), media_type=LINES)


def _entry(link: Link) -> AuditEntry:
    fields = {name: getattr(link, name) for name in AuditEntry.model_fields}
    return AuditEntry(**{**fields, "detail": json.loads(link.detail)})
