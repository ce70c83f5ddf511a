"""The documentation is executed: its Python runs, its commands exist, its links lead somewhere."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(page.relative_to(ROOT).as_posix() for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")
AGENT_ADDRESS = re.compile(r"https?://(?:127\.0\.0\.1|localhost):\d+")


def blocks(page: str, language: str) -> Iterator[tuple[int, str]]:
    """Line number before, and text of, each fenced block of one language."""
    text = (ROOT / page).read_text()
    for match in FENCE.finditer(text):
        if match[1] == language:
            yield text.count("\n", 0, match.start(2)), match[2]


def shell_commands(page: str) -> Iterator[list[str]]:
    """The words of each simple command in the page's `sh` blocks; comments, pipes and `&&` end one."""
    for _, code in blocks(page, "sh"):
        for line in code.replace("\\\n", " ").splitlines():
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            command: list[str] = []
            for word in [*lexer, ";"]:
                if set(word) <= set("|&;<>()"):
                    if command:
                        yield command
                    command = []
                else:
                    command.append(word)


def test_pages_are_found() -> None:
    assert {"README.md", "docs/README.md", "docs/attach.md", "docs/control.md", "docs/demo.md"} <= set(PAGES)


@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(page, "python"))])
def test_python_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for line, code in blocks(page, "python"):
        # No service runs here, so the in-memory transport stands in for one on this machine.
        code = AGENT_ADDRESS.sub("memory:", code)
        exec(compile("\n" * line + code, page, "exec"), namespace)


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page: str, root: Path) -> None:
    from trimtab.api.cli import app

    targets = set(re.findall(r"^([a-z]+):", (root / "Makefile").read_text(), re.MULTILINE))
    for words in shell_commands(page):
        program, *arguments = [word for word in words if not re.fullmatch(r"[A-Z_]+=.*", word)]
        if program == "make":
            assert set(arguments) <= targets, f"{page}: {shlex.join(words)}"
        elif program.rpartition("/")[2] == "trimtab":
            problem = unknown_part(typer.main.get_command(app), arguments)
            assert problem is None, f"{page}: {shlex.join(words)}: there is no {problem}"


def unknown_part(command: Any, arguments: list[str]) -> str | None:
    """The first subcommand or option that the command line does not have, or None."""
    for word in arguments:
        subcommands = getattr(command, "commands", None)
        if word.startswith("-"):
            options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
            if word.partition("=")[0] not in options | {"--help"}:
                return f"option {word}"
        elif subcommands is not None:
            if word not in subcommands:
                return f"command {word}"
            command = subcommands[word]
    return None


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page: str) -> None:
    targets = LINK.findall((ROOT / page).read_text())
    assert [target for target in targets if not (ROOT / page).parent.joinpath(target).exists()] == []
