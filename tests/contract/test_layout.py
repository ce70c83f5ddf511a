"""The house: what lies where, and how large it may grow."""

import os
import re
from pathlib import Path

LONG = 300
"""Lines beyond which a file needs a reason."""
TOO_LONG = 400
"""Lines beyond which no reason is good enough."""


def test_trimtab_holds_the_public_face_and_links_only(root: Path, folders: tuple[str, ...]) -> None:
    entries = {entry.name: entry for entry in (root / "trimtab").iterdir() if entry.name != "__pycache__"}
    assert sorted(entries) == sorted(["__init__.py", "__main__.py", "py.typed", *folders])
    assert sorted(name for name, entry in entries.items() if entry.is_symlink()) == sorted(folders)


def test_links_are_relative_and_lead_to_the_folders_at_the_top(root: Path, folders: tuple[str, ...]) -> None:
    for name in folders:
        assert os.readlink(root / "trimtab" / name) == f"../{name}"
        assert (root / "trimtab" / name / "__init__.py").samefile(root / name / "__init__.py")


def test_every_folder_with_modules_is_a_package(sources: tuple[Path, ...]) -> None:
    assert (
        sorted(folder for folder in {path.parent for path in sources} if not (folder / "__init__.py").is_file()) == []
    )


def test_no_file_is_too_long(root: Path, sources: tuple[Path, ...]) -> None:
    tests = tuple((root / "tests").rglob("*.py"))
    lines = {path.relative_to(root).as_posix(): path.read_text().count("\n") for path in sources + tests}
    too_long = {name: count for name, count in lines.items() if count > TOO_LONG}
    long = {name: count for name, count in lines.items() if count > LONG}
    assert not too_long, f"over {TOO_LONG} lines: {too_long}; over {LONG}, which need a reason: {long}"
    print(f"over {LONG} lines: {long}")


def test_commands_print_through_the_one_console_that_takes_no_orders(root: Path) -> None:
    modules = (root / "api" / "cli").glob("*.py")
    assert [path.name for path in modules if "import Console as RichConsole" in path.read_text()] == ["screen.py"]
    makes_another = re.compile(r"from rich\.console import .*\bConsole\b(?! as RichConsole)")
    assert [path.name for path in (root / "api" / "cli").glob("*.py") if makes_another.search(path.read_text())] == []
