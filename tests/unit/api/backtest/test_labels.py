"""Labels that cannot be are refused, and the message says where."""

from pathlib import Path

import pytest

from trimtab.api.backtest.labels import LabelsError, labelled
from trimtab.api.backtest.scenarios import Label

HEALTHY = '[[run]]\nfile = "run.jsonl"\nlabel = "healthy"\n'


def written(folder: Path, text: str) -> Path:
    (folder / "run.jsonl").touch()
    (folder / "labels.toml").write_text(text)
    return folder


def test_labels_are_read(tmp_path: Path) -> None:
    failing = '[[run]]\nfile = "run.jsonl"\nlabel = "failing"\ncause = 12\nhalf = 40\nnote = "the first 90 steps"\n'
    first, second = labelled(written(tmp_path, HEALTHY + failing))
    assert (first.file, first.label, first.cause, first.half) == ("run.jsonl", Label.HEALTHY, 0, None)
    assert (second.label, second.cause, second.half) == (Label.FAILING, 12, 40)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[run]", "labels.toml: "),
        ("", "run: Field required"),
        ("run = []", "run: List should have at least 1 item"),
        (HEALTHY.replace("healthy", "fine"), "run.0.label: .* not 'fine'"),
        (HEALTHY.replace("run.jsonl", "other.jsonl"), "there is no file .*other.jsonl"),
        (HEALTHY + "half = 3", "only a failing run has them"),
        (HEALTHY.replace("healthy", "failing") + "cause = 9\nhalf = 3", "half: 3 is not after cause, 9"),
        (HEALTHY + "steps = 3", "run.0.steps: Extra inputs"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(LabelsError, match=told):
        labelled(written(tmp_path, text))


def test_a_folder_without_labels_is_no_backtest(tmp_path: Path) -> None:
    with pytest.raises(LabelsError, match=r"there is no .*labels\.toml"):
        labelled(tmp_path)
