"""The page, and the library that it draws its charts with."""

from __future__ import annotations

import gzip
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import FileResponse, HTMLResponse, Response

from trimtab.api.problem import Problem, answer

router = APIRouter(include_in_schema=False)

PAGE = Path(__file__).resolve().parent.parent / "static" / "index.html"
LIBRARY = "/static/plotly-{version}.min.js"
"""Where the page finds plotly.js: beside its own scripts, under a name that changes with what is in it."""
FOR_GOOD = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
SCRIPT = "text/javascript; charset=utf-8"


@router.get("/")
async def dashboard() -> HTMLResponse:
    """The dashboard; it reads everything through the API."""
    return HTMLResponse(_page())


@router.get(LIBRARY)
def library(version: str, accept_encoding: Annotated[str, Header()] = "") -> Response:
    """plotly.js as it lies in the installed package, whose five megabytes of Python are never imported."""
    found = _library()
    if found is None or version != found[0]:
        message = "this version of plotly is not installed; reload the page; if that does not help, install plotly"
        return answer(404, [Problem(field="version", value=version, message=message)])
    if "gzip" in accept_encoding:
        return Response(_compressed(found[1]), media_type=SCRIPT, headers={**FOR_GOOD, "content-encoding": "gzip"})
    return FileResponse(found[1], media_type=SCRIPT, headers=FOR_GOOD)


@cache
def _page() -> str:
    found = _library()
    return PAGE.read_text(encoding="utf-8").replace("VERSION", found[0] if found else "missing")


@cache
def _library() -> tuple[str, Path] | None:
    """The version of the installed plotly and the file of its JavaScript; None where it is not installed."""
    try:
        installed = distribution("plotly")
    except PackageNotFoundError:
        return None
    return installed.version, Path(str(installed.locate_file("plotly/package_data/plotly.min.js")))


@cache
def _compressed(file: Path) -> bytes:
    return gzip.compress(file.read_bytes(), compresslevel=6, mtime=0)
