"""The description of the API is complete, and what it shows is true."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from trimtab.api.app import create_app
from trimtab.api.service import Service

OPEN = {"/livez", "/readyz", "/v1/session"}
"""Paths that nobody needs a token for."""
Operation = tuple[str, str, dict[str, Any]]


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    service = Service.open(tmp_path_factory.mktemp("openapi") / "agent.db")
    yield create_app(service).openapi()
    service.close()


@pytest.fixture(scope="module")
def operations(schema: dict[str, Any]) -> list[Operation]:
    return [
        (method.upper(), path, found) for path, methods in schema["paths"].items() for method, found in methods.items()
    ]


def valid(schema: dict[str, Any], wanted: dict[str, Any], value: Any) -> list[str]:
    """What is wrong with a value."""
    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    registry: Registry[Any] = Registry().with_resource("urn:api", resource)
    absolute = _absolute(wanted)
    return [error.message for error in Draft202012Validator(absolute, registry=registry).iter_errors(value)]


def _absolute(wanted: Any) -> Any:
    if isinstance(wanted, dict):
        return {
            key: f"urn:api{value}" if key == "$ref" and isinstance(value, str) else _absolute(value)
            for key, value in wanted.items()
        }
    return [_absolute(part) for part in wanted] if isinstance(wanted, list) else wanted


def shown(content: dict[str, Any]) -> list[Any]:
    """The examples beside a schema."""
    several = [example["value"] for example in content.get("examples", {}).values()]
    return [content["example"], *several] if "example" in content else several


def test_it_is_openapi_3_1_and_has_every_tag(schema: dict[str, Any], operations: list[Operation]) -> None:
    assert schema["openapi"] == "3.1.0"
    described = {tag["name"]: tag["description"] for tag in schema["tags"]}
    assert all(described.values())
    assert {tag for _, _, operation in operations for tag in operation["tags"]} == set(described)
    assert all(len(operation["tags"]) == 1 for _, _, operation in operations)


def test_every_operation_has_a_name_of_its_own_that_can_be_read(operations: list[Operation]) -> None:
    names = [operation["operationId"] for _, _, operation in operations]
    assert sorted(names) == sorted(set(names))
    assert [name for name in names if not re.fullmatch(r"[a-z]+(_[a-z]+)*", name)] == []


def test_every_operation_says_what_it_does(operations: list[Operation]) -> None:
    for method, path, operation in operations:
        where = f"{method} {path}"
        assert 3 <= len(operation["summary"]) <= 60, where
        assert operation["summary"] != operation["operationId"].replace("_", " ").title(), where
        assert operation["description"], where
        for parameter in operation.get("parameters", []):
            told = parameter.get("description") or parameter["schema"].get("description")
            assert told, f"{where}: {parameter['name']}"


def test_every_error_that_can_happen_is_there_in_its_one_shape(operations: list[Operation]) -> None:
    for method, path, operation in operations:
        responses, where = operation["responses"], f"{method} {path}"
        expected = set()
        if path not in OPEN:
            expected |= {"401", "403", "429", "503"}
        if "{job}" in path:
            expected |= {"404", "422"}
        if "requestBody" in operation:
            expected |= {"413", "415", "422"}
        if operation.get("parameters"):
            expected |= {"422"}
        assert expected <= responses.keys(), where
        for status, response in responses.items():
            assert response["description"], f"{where}: {status}"
            if status[0] in "45":
                assert response["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Problems"}
    assert any("409" in operation["responses"] for _, _, operation in operations)


def test_every_example_is_valid(schema: dict[str, Any], operations: list[Operation]) -> None:
    for method, path, operation in operations:
        where = f"{method} {path}"
        if "requestBody" in operation:
            content = operation["requestBody"]["content"]["application/json"]
            examples = [*content["schema"].get("examples", []), *shown(content)]
            assert examples, where
            for example in examples:
                assert valid(schema, content["schema"], example) == [], where
        for status, response in operation["responses"].items():
            for kind, content in response.get("content", {}).items():
                for example in shown(content):
                    assert valid(schema, content["schema"], example) == [], f"{where}: {status} {kind}"


def test_an_example_that_is_not_valid_would_be_found(schema: dict[str, Any], operations: list[Operation]) -> None:
    [patch] = [operation for _, _, operation in operations if operation["operationId"] == "patch_controls"]
    wanted = patch["requestBody"]["content"]["application/json"]["schema"]
    assert valid(schema, wanted, {"overrides": {"centering": True}, "reason": "r"}) == []
    assert valid(schema, wanted, {"overrides": {"centering": True}}) == ["'reason' is a required property"]
    assert valid(schema, wanted, {"overrides": {}, "reason": "r"}) != []


def test_every_component_is_used(schema: dict[str, Any]) -> None:
    used = set(re.findall(r"#/components/schemas/([\w-]+)", str(schema)))
    assert set(schema["components"]["schemas"]) == used


def test_the_documentation_of_the_api_names_every_path(schema: dict[str, Any]) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/api.md").read_text()
    assert [path for path in schema["paths"] if f"`{path}`" not in text] == []
