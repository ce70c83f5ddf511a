"""The page about logs says what the tables of frameworks say."""

from pathlib import Path

import pytest

from trimtab.api.tail.frameworks import FRAMEWORKS, Framework
from trimtab.api.tail.sources import SOURCES

PAGE = "docs/attach/tail.md"
SIDES = {"above": "the true value is this or above", "below": "the true value is this or below", None: ""}


def rows_of(framework: Framework) -> list[str]:
    """The rows of a framework's table, as the page has them."""
    rows = []
    for key, meaning in framework.keys.items():
        name = f"`{meaning.name}`" if meaning.name else "its own"
        if meaning.factor != 1.0:
            name += " (1 - it)" if meaning.offset else " (-1 times it)"
        rows.append(f"| `{key}` | {name} | {meaning.says} | {SIDES[meaning.censored]} |")
    return rows


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_meaning_and_every_blind_spot_is_on_the_page(name: str, root: Path) -> None:
    lines = set((root / PAGE).read_text().splitlines())
    framework = FRAMEWORKS[name]
    wanted = [*rows_of(framework), *(f"- {line}" for line in framework.blind), f"### {framework.title}"]
    assert [line for line in wanted if line not in lines] == []


def test_every_kind_of_log_is_on_the_page(root: Path) -> None:
    text = (root / PAGE).read_text()
    assert [kind for kind in SOURCES if f"| `{kind}` |" not in text] == []
