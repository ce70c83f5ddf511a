"""The tree under test: the checkout that holds this file."""

from pathlib import Path

import pytest

FOLDERS = ("agent", "api", "hooks", "storage", "trainer")


@pytest.fixture(scope="session")
def root() -> Path:
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def folders() -> tuple[str, ...]:
    """The folders at the top of the tree that `trimtab/` links to."""
    return FOLDERS


@pytest.fixture(scope="session")
def sources(root: Path) -> tuple[Path, ...]:
    """Every Python file of the package, by its real path."""
    homes = [root / "trimtab", *(root / name for name in FOLDERS)]
    found = tuple(sorted({path.resolve() for home in homes for path in home.rglob("*.py")}))
    assert len(found) > 20, f"only {len(found)} source files below {root}: the layout has moved"
    return found
