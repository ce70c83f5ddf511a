"""The description of the API tells what each endpoint asks for."""

from pathlib import Path
from typing import Any

import pytest

from trimtab.api.access.scopes import ENDPOINTS, OPEN, names
from trimtab.api.app import create_app
from trimtab.api.service import Service


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path: Path = tmp_path_factory.mktemp("description") / "agent.db"
    service = Service.open(path)
    schema = create_app(service).openapi()
    service.close()
    return schema


@pytest.mark.parametrize("endpoint", sorted(set(ENDPOINTS) - {"GET /", "GET /openapi.json"}))
def test_an_endpoint_says_what_it_asks_for_and_how_it_refuses(described: dict[str, Any], endpoint: str) -> None:
    method, path = endpoint.split(" ")
    operation = described["paths"][path][method.lower()]
    if ENDPOINTS[endpoint] == OPEN:
        assert "security" not in operation
        return
    assert operation["security"] == [{"token": []}, {"session": []}]
    assert operation["description"].endswith(f"Needs the scope {names(ENDPOINTS[endpoint])}.")
    assert {"401", "403", "429", "503"} <= set(operation["responses"])


def test_both_ways_to_show_a_token_are_described(described: dict[str, Any]) -> None:
    schemes = described["components"]["securitySchemes"]
    assert (schemes["token"]["scheme"], schemes["session"]["in"], schemes["session"]["name"]) == (
        "bearer",
        "cookie",
        "trimtab_session",
    )
