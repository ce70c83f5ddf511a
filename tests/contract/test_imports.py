"""Who imports whom, and what an import costs."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

FRAMEWORKS = {"torch", "pydantic", "fastapi", "sqlalchemy", "httpx", "matplotlib", "typer"}


def imported(tree: ast.AST) -> set[str]:
    """Top-level names of the modules that a file imports, at any depth; `.` stands for a relative import."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." if node.level else (node.module or "").partition(".")[0])
    return names


def modules_after(statement: str, cwd: Path) -> set[str]:
    """Top-level names in `sys.modules` of a fresh process, after `statement`."""
    program = f"{statement}\nimport sys, json\nprint(json.dumps(sorted({{m.partition('.')[0] for m in sys.modules}})))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=cwd, check=False
    )
    assert done.returncode == 0, f"{statement}\n{done.stderr}"
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_scan_sees_every_form_of_import() -> None:
    code = "import hooks, agent.state as s\ndef f():\n    from api.app import x\nfrom . import y\nfrom trimtab import z"
    assert imported(ast.parse(code)) == {"hooks", "agent", "api", ".", "trimtab"}


def test_nothing_imports_a_folder_without_its_namespace(
    root: Path, folders: tuple[str, ...], sources: tuple[Path, ...]
) -> None:
    files = [*sources, *(root / "tests").rglob("*.py")]
    bare = {str(path.relative_to(root)): imported(ast.parse(path.read_text())) & {*folders, "."} for path in files}
    assert {name: found for name, found in bare.items() if found} == {}


def test_import_contracts_hold(root: Path) -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], capture_output=True, text=True, timeout=300, cwd=root, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "module", ["trimtab", "trimtab.hooks", "trimtab.hooks.records", "trimtab.hooks.controls", "trimtab.hooks.contract"]
)
def test_the_hooks_bring_no_framework_along(module: str, tmp_path: Path) -> None:
    assert modules_after(f"import {module}", tmp_path) & FRAMEWORKS == set()


def test_attaching_without_an_agent_brings_no_framework_along(tmp_path: Path) -> None:
    attach = "import trimtab\nemitter = trimtab.attach('memory:', job='contract')"
    assert modules_after(attach, tmp_path) & FRAMEWORKS == set()


@pytest.mark.parametrize("module", ["trimtab.api.app", "trimtab.storage", "trimtab.agent.advance"])
def test_the_service_leaves_torch_out(module: str, tmp_path: Path) -> None:
    assert "torch" not in modules_after(f"import {module}", tmp_path)


def test_serving_loads_nothing_that_draws_or_trains(tmp_path: Path) -> None:
    heavy = {"torch", "matplotlib", "plotly", "pandas"}
    assert modules_after("import trimtab.api.cli, trimtab.api.cli.serve", tmp_path) & heavy == set()


def test_the_brain_brings_no_server_or_database_along(tmp_path: Path) -> None:
    servers = {"fastapi", "sqlalchemy", "httpx", "uvicorn"}
    assert modules_after("import trimtab.agent.advance", tmp_path) & servers == set()
