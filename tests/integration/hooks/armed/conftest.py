"""An environment that is armed, and one that is not."""

from __future__ import annotations

import pytest
from armed_runs import Environment


@pytest.fixture(scope="session")
def armed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("armed") / "venv")
    environment.trimtab("arm")
    return environment


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("plain") / "venv")
