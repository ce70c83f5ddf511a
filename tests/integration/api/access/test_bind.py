"""Others can reach the service only where an admin's token is."""

import socket

import pytest
from access_runs import bearing, issued

from trimtab.api.access.scopes import Scope
from trimtab.api.server import BindError, bind, running
from trimtab.api.service import Service

OTHERS = ["0.0.0.0", "::", "192.0.2.1", "example.com"]


@pytest.mark.parametrize("host", OTHERS)
def test_without_an_admins_token_nobody_else_is_listened_to(service: Service, host: str) -> None:
    issued(service, Scope.CONTROL)
    issued(service, Scope.INGEST)
    with pytest.raises(BindError) as caught:
        bind(host, 0, service.database)
    told = str(caught.value)
    assert told.startswith(f"host: {host!r} can be reached by others, and {service.database.name} has no admin's token")
    assert f"trimtab token create NAME --scope admin --db {service.database.name}" in told


def test_an_admins_token_that_is_spent_does_not_count(service: Service) -> None:
    issued(service, Scope.ADMIN, clock=lambda: 1000.0, expires_in=10)
    with pytest.raises(BindError, match="no admin's token that is valid"):
        bind("0.0.0.0", 0, service.database)


def test_with_one_it_is_reached_and_asks_for_it(service: Service) -> None:
    token = issued(service, Scope.ADMIN)
    with running(service, host="0.0.0.0") as url:
        port = url.rpartition(":")[2]
        address = f"http://{socket.gethostbyname(socket.gethostname())}:{port}"
        with bearing(address, token) as http:
            assert http.get("/v1/jobs").status_code == 200
        with bearing(address, None) as http:
            assert http.get("/livez").status_code == 200
            refused = http.get("/v1/jobs")
            assert refused.status_code in (401, 403)
            assert refused.json()["errors"][0]["field"] in ("Authorization", "Host")
