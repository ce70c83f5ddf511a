"""What every `trimtab bench` command does alike: figures as a table or as JSON, and mistakes in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab.api.cli.bench import _show, bench
from trimtab.api.cli.errors import UsageError

CONFIG = """
task.digits = 2
model = { width = 16, layers = 1, heads = 1, hidden = 16 }
warm_start = { steps = 1, batch = 2 }
rollout = { prompts = 2, group_size = 2 }
evaluation.prompts = 4
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "run.toml"
    path.write_text(CONFIG)
    return path


def test_figures_are_a_table_or_the_same_as_json(config: Path) -> None:
    rows = json.loads(CliRunner().invoke(bench, ["ladder", str(config), "--json"]).stdout)
    assert rows[0].keys() == {"format", "std", "largest", "mismatch_kl", "reward"}
    heading, *lines = CliRunner().invoke(bench, ["ladder", str(config)]).stdout.splitlines()
    assert heading.split()[0] == "sampler"
    assert [[part.strip() for part in line.rsplit(maxsplit=4)] for line in lines] == [
        [
            row["format"],
            f"{row['std']:.4f}",
            f"{row['largest']:.2f}",
            f"{row['mismatch_kl']:.1e}",
            f"{row['reward']:.3f}",
        ]
        for row in rows
    ]


def test_a_mistake_is_the_users(config: Path) -> None:
    config.write_text("steps = 0")
    told = CliRunner().invoke(bench, ["ladder", str(config)]).exception
    assert isinstance(told, UsageError)
    assert str(told) == "steps: Input should be greater than or equal to 1 (given 0)"


def test_a_table_that_is_piped_is_whole_however_wide(capsys: pytest.CaptureFixture[str]) -> None:
    wide = [f"{'heading' * 3} {index}" for index in range(8)]
    _show([], False, wide, [[f"{index}.123456 to {index}.654321" for index in range(8)]], "a title")
    title, headings, numbers = capsys.readouterr().out.splitlines()
    assert title.strip() == "a title"
    assert headings.split() == " ".join(wide).split()
    assert numbers.split() == [word for index in range(8) for word in (f"{index}.123456", "to", f"{index}.654321")]


def test_figures_without_a_run_are_shown_alike() -> None:
    said = CliRunner().invoke(bench, ["hook"]).stdout.splitlines()
    assert said[0].strip().startswith("32768 tokens, one thread, ")
    assert said[1].split() == ["median", "ms", "p10", "p90"]
    assert [line.rsplit(maxsplit=3)[0].strip() for line in said[2:]] == [
        "observe + end_step",
        "later, in the transport's thread",
        "torch.quantile",
    ]
