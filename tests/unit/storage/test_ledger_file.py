"""The file of JSON lines."""

from dataclasses import replace
from pathlib import Path

import pytest

from trimtab.storage.ledger_file import LedgerFileError, lines, read
from trimtab.storage.values import Entry, EntryKind, Recorded, StoredEvent, StoredState

RECORDED = Recorded(
    job="run",
    config='{"window": 5}',
    entries=(
        Entry(
            kind=EntryKind.SUMMARY,
            payload='{"scalars": {"loss": "NaN", "x": 1e-05}}',
            digest="d" * 64,
            received_at=1.5,
            attempt=1,
            step=0,
            rank=0,
            seq=1,
        ),
        Entry(kind=EntryKind.OPERATOR, payload="{}", digest="e" * 64, received_at=2.5, seq=2),
    ),
    events=(StoredEvent(number=1, seq=1, kind="k", attempt=1, step=0, message="é", detail={"a": [1, "NaN"]}),),
    state=StoredState(state='{"job": "run"}', schema="s" * 64, seq=1),
)


def written(path: Path, text_lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in text_lines), encoding="utf-8")
    return path


def test_round_trip(tmp_path: Path) -> None:
    for recorded in (RECORDED, replace(RECORDED, state=None)):
        assert read(written(tmp_path / "l.jsonl", list(lines(recorded)))) == recorded


def test_a_state_without_a_schema_is_of_an_unknown_one_after_the_last_entry(tmp_path: Path) -> None:
    found = read(written(tmp_path / "l.jsonl", [*list(lines(RECORDED))[:-1], '{"state": {"job": "run"}}']))
    assert found.state == StoredState(state='{"job": "run"}', schema="", seq=2)


@pytest.mark.parametrize("kept", [0, 1, 2, 3, 4])
def test_a_file_that_was_cut_short_is_refused(tmp_path: Path, kept: int) -> None:
    with pytest.raises(LedgerFileError, match="ends before its last line"):
        read(written(tmp_path / "l.jsonl", list(lines(RECORDED))[:kept]))


@pytest.mark.parametrize(
    ("line", "text"),
    [(1, '{"trimtab_ledger": 2}'), (2, "not json"), (3, '{"entry": {"kind": "summary"}}'), (4, "{}"), (2, "[]")],
)
def test_a_bad_line_is_named(tmp_path: Path, line: int, text: str) -> None:
    all_lines = list(lines(RECORDED))
    all_lines[line - 1] = text
    with pytest.raises(LedgerFileError, match=f"line {line}: not a line of a ledger"):
        read(written(tmp_path / "l.jsonl", all_lines))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerFileError, match=r"absent\.jsonl: cannot be read"):
        read(tmp_path / "absent.jsonl")
