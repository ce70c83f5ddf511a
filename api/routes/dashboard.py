"""The page."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse

router = APIRouter(include_in_schema=False)

PAGE = Path(__file__).resolve().parent.parent / "static" / "index.html"


@router.get("/")
async def dashboard() -> FileResponse:
    """The dashboard; it reads everything through the API."""
    return FileResponse(PAGE)
