"""Tiny models of real families, one folder each for the session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_models import saved_model


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny model by its family, written once a session."""
    root, made = tmp_path_factory.mktemp("models"), {}

    def written(family: str) -> Path:
        if family not in made:
            made[family] = saved_model(family, root / family)
        return made[family]

    return written
