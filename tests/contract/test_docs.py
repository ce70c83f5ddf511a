"""The documentation is executed: its Python runs, its commands exist, its links lead somewhere."""

import math
import re
import shlex
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer

from trimtab.agent.config import AgentConfig, with_settings
from trimtab.agent.detectors import DETECTORS
from trimtab.api.app import create_app
from trimtab.api.backtest.labels import FILE as LABELS
from trimtab.api.backtest.labels import labelled
from trimtab.api.cli import app
from trimtab.api.demo.outcome import RunOutcome
from trimtab.api.lab.cells import load_lab
from trimtab.api.server import DEFAULT_PORT
from trimtab.api.service import Service
from trimtab.hooks.controls import CHOICES, CONTROL_NAMES, NUMERIC_BOUNDS
from trimtab.storage.database import Database
from trimtab.trainer.algorithms import ALGORITHMS
from trimtab.trainer.config import load_config, validated
from trimtab.trainer.quant import FORMATS, RECIPES

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


def _trainer_of_trl(folder: Path) -> dict[str, Any]:
    from trl_runs import grpo

    return {"trainer": grpo(folder, steps=2)}


GIVEN = {"README.md": _trainer_of_trl, "docs/attach/trl.md": _trainer_of_trl}
"""What a page takes for granted: names that its reader has."""


@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(page, "python"))])
def test_python_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    if page in GIVEN:
        warnings.simplefilter("ignore")  # of other people's trainers; pytest puts the filters back
        namespace |= GIVEN[page](tmp_path)
    for line, code in blocks(page, "python"):
        # No service runs here, so the in-memory transport stands in for one on this machine.
        code = AGENT_ADDRESS.sub("memory:", code)
        exec(compile("\n" * line + code, page, "exec"), namespace)


@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(page, "toml"))])
def test_configurations_are_valid(page: str, tmp_path: Path) -> None:
    for _, code in blocks(page, "toml"):
        data = tomllib.loads(code)
        if "formats" in data:  # a lab's
            path = tmp_path / "lab.toml"
            path.write_text(code)
            assert load_lab(path).cells
        elif isinstance(data.get("run"), list):  # labels of recorded runs
            for run in data["run"]:
                (tmp_path / run["file"]).touch()
            (tmp_path / LABELS).write_text(code)
            assert labelled(tmp_path)
        elif set(data) <= {field.name for field in fields(AgentConfig)}:
            with_settings(AgentConfig(), data)
        else:
            validated(data)


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_train_have_a_valid_configuration(page: str) -> None:
    for words in shell_commands(page):
        if "trimtab" in words and "train" in words:
            paths = [ROOT / word for word in words if word.endswith(".toml")]
            settings = [after for word, after in pairwise(words) if word == "--set"]
            load_config(paths[0] if paths else None, settings)


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
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
        if word.startswith("-"):
            options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
            if word.partition("=")[0] not in options | {"--help"}:
                return f"option {word}"
        elif hasattr(command, "get_command"):
            found = command.get_command(typer.Context(command), word)
            if found is None:
                return f"command {word}"
            command = found
    return None


def test_the_check_tells_real_commands_from_others() -> None:
    command = typer.main.get_command(app)
    assert unknown_part(command, ["bench", "hook", "--json"]) is None
    assert unknown_part(command, ["sreve"]) == "command sreve"
    assert unknown_part(command, ["serve", "--prot", "1"]) == "option --prot"


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """Method and path of everything that the service answers; each parameter is an `x`."""
    service = Service(Database(tmp_path_factory.mktemp("service") / "docs.db"))
    paths = create_app(service).openapi()["paths"]
    service.close()
    return {(method.upper(), re.sub(r"\{\w+\}", "x", path)) for path in paths for method in paths[path]}


@pytest.mark.parametrize("page", PAGES)
def test_endpoints_exist(page: str, endpoints: set[tuple[str, str]]) -> None:
    for words in shell_commands(page):
        if words[0] == "curl":
            method = words[words.index("-X") + 1] if "-X" in words else "GET"
            (url,) = [word for word in words if word.startswith("http")]
            path = re.sub(r"/(jobs|proposals|silences|incidents)/[^/]+", r"/\1/x", urlsplit(url).path)
            assert (method, path) in endpoints, f"{page}: {shlex.join(words)}"


@pytest.mark.parametrize("page", [*PAGES, "trimtab/__init__.py"])
def test_addresses_are_the_default_one(page: str) -> None:
    assert set(AGENT_ADDRESS.findall((ROOT / page).read_text())) <= {f"http://127.0.0.1:{DEFAULT_PORT}"}


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page: str) -> None:
    targets = LINK.findall((ROOT / page).read_text())
    assert [target for target in targets if not (ROOT / page).parent.joinpath(target).exists()] == []


def test_the_summary_is_documented_field_by_field() -> None:
    section = (ROOT / "docs/demo.md").read_text().partition("summary.json`\n")[2]
    documented = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert documented == [field.name for field in fields(RunOutcome)]


def table(page: str, header: str) -> list[list[str]]:
    """The cells of the table whose first row starts with `header`, without that row."""
    found = (ROOT / page).read_text().partition(f"\n{header}")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in found.splitlines()[2:]]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_control_has_a_row_with_its_values() -> None:
    rows = [
        (name, quoted(values)) for names, values, _ in table("docs/control.md", "| control |") for name in quoted(names)
    ]
    assert sorted(name for name, _ in rows) == sorted(CONTROL_NAMES)
    assert {name: tuple(values) for name, values in rows if name in CHOICES} == CHOICES


def test_the_bounds_of_numbers_are_documented() -> None:
    written = {}
    for names, values, _ in table("docs/control.md", "| control |"):
        written |= dict(zip(quoted(names), values.split(", "), strict=False))
    for name, bounds in NUMERIC_BOUNDS.items():
        assert written[name] == f"{bounds.low:g} to {'infinity' if bounds.high == math.inf else f'{bounds.high:g}'}"


def test_every_algorithm_is_documented_as_it_is() -> None:
    for name, objective, aggregation, advantage, clip, _ in table("docs/train.md", "| algorithm |"):
        preset = ALGORITHMS[quoted(name)[0]]
        said = [quoted(cell)[0] for cell in (objective, aggregation, advantage)]
        assert said == [preset[field] for field in ("objective", "aggregation", "advantage")]
        if preset["objective"] != "reinforce":
            bounds = [float(bound) for bound in clip.partition(":")[0].split(", ")]
            assert bounds == [preset["clip_low"], preset["clip_high"]]
    assert [quoted(row[0])[0] for row in table("docs/train.md", "| algorithm |")] == list(ALGORITHMS)


def test_every_recipe_is_documented_as_it_is() -> None:
    rows = [tuple(quoted(cell)[0] for cell in row[:3]) for row in table("docs/train.md", "| recipe |")]
    assert rows == [(recipe.name, recipe.format, recipe.backward) for recipe in RECIPES.values()]


def test_every_format_is_documented_with_its_blocks() -> None:
    rows = {quoted(row[0])[0]: row[-1] for row in table("docs/train.md", "| format | elements |")}
    assert list(rows) == list(FORMATS)
    for name, told in rows.items():
        block = tuple(max(FORMATS[name].block(role)[dim] for role in ("weight", "activation")) for dim in (0, 1))
        assert told == ("any" if block == (1, 1) else f"{block[0]}, {block[1]}")


def test_every_detector_has_a_row_with_its_role() -> None:
    rows = [(name, role) for names, role, *_ in table("docs/detectors.md", "| detector |") for name in quoted(names)]
    assert sorted(rows) == sorted((name, detector.ROLE.name.lower()) for name, detector in DETECTORS.items())
