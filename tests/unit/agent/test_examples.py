"""The examples in the agent's docstrings run."""

import doctest
from importlib import import_module

import pytest

MODULES = ("baselines", "config", "run_state")


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(import_module(f"trimtab.agent.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
