"""What the page is made of, as it is served."""

import gzip
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import httpx

LIBRARY = Path(str(distribution("plotly").locate_file("plotly/package_data/plotly.min.js")))
STATIC = Path(__file__).resolve().parents[3] / "api" / "static"


def library_of(http: httpx.Client) -> str:
    """Where the page says that its charts' library is."""
    match = re.search(r'data-plotly="([^"]+)"', http.get("/").raise_for_status().text)
    assert match is not None
    return match[1]


def test_the_library_is_the_installed_one_and_is_kept_for_good(http: httpx.Client) -> None:
    path = library_of(http)
    assert path == f"/static/plotly-{distribution('plotly').version}.min.js"
    plain = http.get(path, headers={"accept-encoding": "identity"}).raise_for_status()
    assert plain.content == LIBRARY.read_bytes()
    assert plain.headers["content-type"] == "text/javascript; charset=utf-8"
    assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
    with http.stream("GET", path, headers={"accept-encoding": "gzip"}) as packed:
        raw = b"".join(packed.iter_raw())
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == "accept-encoding"
    assert gzip.decompress(raw) == plain.content
    assert len(raw) < len(plain.content) / 2


def test_another_version_of_the_library_is_not_there(http: httpx.Client) -> None:
    answer = http.get("/static/plotly-0.0.1.min.js")
    assert answer.status_code == 404
    assert answer.json()["errors"][0]["value"] == "0.0.1"
    assert "immutable" not in answer.headers["cache-control"]


def test_the_page_may_load_nothing_from_elsewhere_and_run_nothing_inline(http: httpx.Client) -> None:
    page = http.get("/").raise_for_status()
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in page.headers["content-security-policy"]
    assert re.findall(r"<script(?![^>]*\ssrc=)|\son\w+=|\sstyle=|(?:src|href)=\"https?:", page.text) == []


def test_every_file_that_the_page_names_is_served(http: httpx.Client) -> None:
    named = re.findall(r'(?:src|href)="(/static/[^"]+)"', http.get("/").text)
    assert len(named) > 5
    scripts = list(STATIC.rglob("*.js"))
    for script in scripts:
        for imported in re.findall(r'from "(\.[^"]+)"', script.read_text()):
            assert (script.parent / imported).is_file(), f"{script.name}: {imported}"
    for path in {*named, *(f"/static/{script.relative_to(STATIC).as_posix()}" for script in scripts)}:
        assert http.get(path).status_code == 200, path


def test_no_script_makes_html_or_code_of_text() -> None:
    forbidden = r"innerHTML\s*=|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    for script in STATIC.rglob("*.js"):
        assert re.findall(forbidden, script.read_text()) == [], script.name


def test_no_script_is_too_long() -> None:
    lines = {script.name: script.read_text().count("\n") for script in STATIC.rglob("*.js")}
    assert {name: count for name, count in lines.items() if count > 300} == {}


def test_the_app_never_imports_the_package_of_the_library() -> None:
    program = (
        "import sys, trimtab.api.app; from trimtab.api.routes.dashboard import _page; "
        "_page(); print('plotly' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
