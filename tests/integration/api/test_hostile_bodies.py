"""Every endpoint that takes a body refuses what is none, and then nothing at all is stored."""

import gzip
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from populated import populate
from sqlalchemy import func, select

from trimtab.api.access.doorman import AccessSettings
from trimtab.api.access.limits import Limits, Rate
from trimtab.api.client import Client
from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.api.settings import Settings
from trimtab.storage.tables import Base

UNLIMITED = Rate(per_second=1e6, burst=1e6)
HALF = "\ud800"
BOMB = gzip.compress(b'{"reason": "' + b" " * 100_000_000 + b'"}', 1)
KNOWN = {"job": "waiting", "detector": "mismatch", "number": "1", "token": "nobody", "id": "nothing"}
Sent = tuple[str, bytes, dict[str, str]]
"""What it is, the body, and headers beside the content type."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service.open(tmp_path_factory.mktemp("hostile") / "agent.db")
    yield service
    service.close()


@pytest.fixture(scope="module")
def http(service: Service) -> Iterator[httpx.Client]:
    limits = Limits(ingest=UNLIMITED, control=UNLIMITED, failures=UNLIMITED)
    with running(service, settings=Settings(access=AccessSettings(limits=limits))) as url:
        with Client(url) as client:
            populate(client)
        while stored(service)["outbox"]:  # what there is to tell of it is on its way
            time.sleep(0.01)
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
            yield http


def endpoints(http: httpx.Client) -> Iterator[tuple[str, str, Any]]:
    """Method, path and a good body of everything that takes one."""
    for path, methods in http.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            if "requestBody" in operation:
                content = operation["requestBody"]["content"]["application/json"]
                shown = [one["value"] for one in content.get("examples", {}).values()]
                example = [*content["schema"].get("examples", []), *shown, content.get("example")][0]
                yield method.upper(), path.format(**KNOWN), example


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of a body stand."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(value, list) and value:
        yield from leaves(value[0], (*path, 0))
    else:
        yield path


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    if not path:
        return by
    if isinstance(value, dict):
        return {name: replaced(inner, path[1:], by) if name == path[0] else inner for name, inner in value.items()}
    return [replaced(inner, path[1:], by) if index == path[0] else inner for index, inner in enumerate(value)]


def whole(example: Any) -> Iterator[Sent]:
    """Bodies that are no body at all."""
    good = json.dumps(example).encode()
    yield "nothing", b"", {}
    yield "half of it", good[: len(good) // 2], {}
    yield "no text", b"\xff\xfe" + good, {}
    yield "text", b'"text"', {}
    yield "a number", b"1e400", {}
    yield "NaN", b"NaN", {}
    yield "null", b"null", {}
    yield "deep lists", b"[" * 100_000, {}
    yield "deep objects", b'{"a":' * 100_000, {}
    yield "a long number", b'{"reason": ' + b"1" * 10_000 + b"}", {}
    yield "too much", b'{"reason": "' + b"x" * 1_100_000 + b'"}', {}
    yield "no such encoding", good, {"content-encoding": "br"}
    yield "a bomb", BOMB, {"content-encoding": "gzip"}
    yield "no gzip", good, {"content-encoding": "gzip"}


def parts(example: Any) -> Iterator[Sent]:
    """Good bodies but for one value, which nothing can be."""
    for path in leaves(example):
        for by in (HALF, 10**400, {"a": {"b": [1]}}, [[[]]]):
            yield f"{path}: {by!r:.40}", json.dumps(replaced(example, path, by)).encode(), {}


def refused(response: httpx.Response) -> bool:
    """Whether an answer says what is wrong; that to a batch says it of each summary."""
    if response.status_code == 200 and "results" in response.json():
        return all(one["result"] == "invalid" and one["errors"] for one in response.json()["results"])
    return 400 <= response.status_code < 500 and bool(response.json()["errors"])


def stored(service: Service) -> dict[str, int]:
    """Rows by table."""
    with service.database.read() as connection:
        return {
            name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for name, table in Base.metadata.tables.items()
        }


@pytest.mark.parametrize("bodies", [whole, parts])
def test_what_is_no_body_is_refused_everywhere_and_leaves_nothing(
    service: Service, http: httpx.Client, bodies: Any
) -> None:
    before, asked, taken = stored(service), 0, []
    for method, path, example in endpoints(http):
        for what, body, headers in bodies(example):
            response = http.request(method, path, content=body, headers={"content-type": "application/json", **headers})
            asked += 1
            if not refused(response):
                taken.append(f"{method} {path}: {what}: {response.status_code} {response.text[:200]}")
    assert "\n".join(taken) == ""
    assert asked > 200
    assert stored(service) == before


def test_what_is_sent_as_something_else_than_json_is_told_so(http: httpx.Client) -> None:
    for method, path, example in endpoints(http):
        body = json.dumps(example).encode()
        response = http.request(method, path, content=body, headers={"content-type": "text/plain"})
        if "/summaries" not in path:  # a trainer's is read whatever it is called
            assert response.status_code == 422, path
            assert response.json()["errors"][0]["field"] in ("Content-Type", "body"), path


def test_the_bodies_are_hostile_for_what_is_wrong_with_them(http: httpx.Client) -> None:
    """The same requests with good bodies get further: to an answer, or to what is wrong with their subject."""
    statuses = {}
    for method, path, example in endpoints(http):
        if not path.endswith(("/replay", "/kill", "/session", "/tokens")):
            statuses[f"{method} {path}"] = http.request(method, path, json=example).status_code
    assert statuses["POST /v1/summaries/batch"] == 200
    assert statuses["PATCH /v1/jobs/waiting/controls"] in (200, 409)
    assert statuses["PUT /v1/jobs/waiting/mode"] == 200
    assert set(statuses.values()) <= {200, 201, 404, 409, 410}


def test_a_long_body_gets_a_short_answer(http: httpx.Client) -> None:
    body = json.dumps({"scalars": {}} | {f"k{i}": i for i in range(50_000)})
    answer = http.put("/v1/jobs/waiting/mode", content=body, headers={"content-type": "application/json"})
    errors = answer.json()["errors"]
    assert (answer.status_code, len(errors)) == (422, 21)
    assert errors[-1]["message"].endswith("more are wrong; correct these first")


@pytest.mark.parametrize("declared", [True, False])
def test_whoever_logs_in_sends_little(http: httpx.Client, declared: bool) -> None:
    body = b'{"token": "' + b"x" * 4096 + b'"}'
    headers = {"content-type": "application/json"}
    answer = http.post("/v1/session", content=body if declared else iter([body]), headers=headers)
    assert answer.status_code == 413
    assert "the body is larger than 4096 bytes" in answer.json()["errors"][0]["message"]
    assert http.post("/v1/session", content=b'{"token": "x"}', headers=headers).status_code == 401
