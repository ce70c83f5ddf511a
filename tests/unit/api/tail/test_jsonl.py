"""JSON lines as frameworks write them, cut, replaced, half there, and not what they should be."""

import json
import math
import os
from pathlib import Path

import pytest

from trimtab.api.tail.files import PIECE
from trimtab.api.tail.jsonl import JsonLines
from trimtab.api.tail.source import Row, TailError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def written(path: Path, text: str, mode: str = "a") -> None:
    with path.open(mode) as file:
        file.write(text)


def test_every_dialect_is_a_row(path: Path) -> None:
    written(path, '{"step": 3, "data": {"actor/entropy": 0.5, "critic/score/mean": 1}}\n')
    written(path, '{"step": 4, "time": 1796000000.5, "loss/mean": 0.25, "producer": "trainer"}\n')
    written(path, '{"global_step": 5, "loss": 0.125, "time": 2.5, "nested": {"deep": {"x": 1}}}\n')
    written(path, '{"step": null, "time": 1796000001.0, "inference/queue": 3}\n')
    piece = JsonLines(path).read({})
    assert piece.rows == (
        Row(step=3, values={"actor/entropy": 0.5, "critic/score/mean": 1.0}),
        Row(step=4, time=1796000000.5, values={"loss/mean": 0.25}),
        Row(step=5, values={"loss": 0.125, "time": 2.5, "nested/deep/x": 1.0}),
        Row(step=None, time=1796000001.0, values={"inference/queue": 3.0}),
    )
    assert piece.skipped.not_numbers == 1  # the producer


def test_what_is_not_finite_is_read_and_null_is_not_there(path: Path) -> None:
    written(
        path, '{"step": 0, "a": NaN, "b": Infinity, "c": -Infinity, "d": "NaN", "e": "inf", "f": null, "g": true}\n'
    )
    (row,) = JsonLines(path).read({}).rows
    assert math.isnan(row.values["a"])
    assert math.isnan(row.values["d"])
    assert {key: row.values[key] for key in "bce"} == {"b": math.inf, "c": -math.inf, "e": math.inf}
    assert set(row.values) == set("abcde")


def test_a_line_is_read_once_it_is_whole(path: Path) -> None:
    source = JsonLines(path)
    written(path, '{"step": 0, "x": 1}\n{"step": 1, "x"')
    first = source.read({})
    assert [row.step for row in first.rows] == [0]
    assert source.read(first.place).rows == ()
    written(path, ": 2}\n")
    second = source.read(first.place)
    assert second.rows == (Row(step=1, values={"x": 2.0}),)
    assert source.read(second.place).rows == ()


def test_a_file_that_was_cut_begins_anew(path: Path) -> None:
    source = JsonLines(path)
    written(path, "".join(f'{{"step": {i}, "x": 1}}\n' for i in range(100)))
    place = source.read({}).place
    written(path, '{"step": 50, "x": 2}\n', "w")  # the same inode
    piece = source.read(place)
    assert piece.rows == (Row(step=None, restart=True), Row(step=50, values={"x": 2.0}))


def test_a_file_that_was_cut_and_has_grown_beyond_begins_anew(path: Path) -> None:
    source = JsonLines(path)
    written(path, '{"step": 0, "x": 1}\n')
    place = source.read({}).place
    written(path, "".join(f'{{"step": {i}, "x": 2}}\n' for i in range(7, 20)), "w")
    assert [row.step for row in source.read(place).rows] == [None, *range(7, 20)]


def test_another_file_in_its_place_begins_anew(path: Path, tmp_path: Path) -> None:
    source = JsonLines(path)
    written(path, '{"step": 0, "x": 1}\n')
    place = source.read({}).place
    os.rename(path, tmp_path / "metrics.jsonl.1")
    written(path, '{"step": 0, "x": 1}\n{"step": 1, "x": 1}\n')
    assert [row.restart for row in source.read(place).rows] == [True, False, False]


def rotated(path: Path, tmp_path: Path, rest: str) -> list[list[Row]]:
    """Rows by look, of a log whose file was renamed with `rest` in it that nobody had read."""
    source = JsonLines(path)
    written(path, '{"step": 0, "x": 1}\n')
    piece = source.read({})
    written(path, rest)
    os.rename(path, tmp_path / "metrics.jsonl.1")
    written(path, '{"step": 3, "x": 1}\n')
    looks = []
    while True:
        piece = source.read(piece.place)
        looks.append(list(piece.rows))
        assert piece.skipped.cut_off == 0
        if not piece.more:
            return looks


def test_the_rest_of_a_file_that_was_renamed_is_read_first(path: Path, tmp_path: Path) -> None:
    new = [Row(step=None, restart=True), Row(step=3, values={"x": 1.0})]
    rest = [Row(step=1, values={"x": 1.0}), Row(step=2, values={"x": 1.0})]
    looks = rotated(path, tmp_path, '{"step": 1, "x": 1}\n{"step": 2, "x": 1}\n')
    assert looks == [rest, new]


def test_the_end_of_a_file_that_was_renamed_needs_no_end_of_its_line(path: Path, tmp_path: Path) -> None:
    new = [Row(step=None, restart=True), Row(step=3, values={"x": 1.0})]
    rest = [[Row(step=1, values={"x": 1.0})], [Row(step=2, values={"x": 1.0})]]
    assert rotated(path, tmp_path, '{"step": 1, "x": 1}\n{"step": 2, "x": 1}') == [*rest, new]


def test_a_large_rest_of_a_file_that_was_renamed_is_read_in_pieces(path: Path, tmp_path: Path) -> None:
    rest = "".join(f'{{"step": 1, "x": 1, "pad": "{"a" * 1000}"}}\n' for _ in range(2 * PIECE // 1000))
    looks = rotated(path, tmp_path, rest)
    assert len(looks) > 3
    assert [row.step for look in looks for row in look] == [*[1] * (2 * PIECE // 1000), None, 3]


def test_a_rest_that_may_be_lost_is_counted(path: Path, tmp_path: Path) -> None:
    source = JsonLines(path)
    written(path, '{"step": 0, "x": 1}\n{"step": 1, "x": 1}\n')
    place = source.read({}).place
    written(path, '{"step": 0, "x": 1}\n', "w")
    assert source.read(place).skipped.cut_off == 1
    (tmp_path / "new").write_text('{"step": 5, "x": 1}\n')
    os.replace(tmp_path / "new", path)
    piece = source.read(source.read(place).place)
    assert (piece.skipped.cut_off, piece.skipped.damaged) == (0, 0)
    (tmp_path / "new").write_text('{"step": 6, "x": 1}\n')
    os.replace(tmp_path / "new", path)
    assert source.read(piece.place).skipped.cut_off == 1


def test_a_file_that_is_gone_or_not_readable_is_named(path: Path, tmp_path: Path) -> None:
    with pytest.raises(TailError, match=r"metrics\.jsonl: is not there \(any more\); check the path"):
        JsonLines(path).read({})
    with pytest.raises(TailError, match="is a folder; give the file in it"):
        JsonLines(tmp_path).read({})


def test_what_is_no_record_is_counted(path: Path) -> None:
    path.write_bytes(b'\xff\xfe\x00garbage\n[1, 2]\n{"step": 1, "x": 1}\n{"step": 2, "x"\n' + b'{"step": 3, "x": 3}\n')
    piece = JsonLines(path).read({})
    assert [row.step for row in piece.rows] == [1, 3]
    assert piece.skipped.damaged == 3
    assert JsonLines(path).read({"offset": 0}).rows[0].restart  # a place of no file that is known


def test_nesting_and_huge_numbers_are_no_way_to_stop_it(path: Path) -> None:
    written(path, '{"step": 0, "x": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    written(path, '{"step": 1, "x": ' + "9" * 5000 + ', "y": 1e999, "z": ' + "9" * 350 + "}\n")
    piece = JsonLines(path).read({})
    assert piece.rows == (Row(step=1, values={"x": math.inf, "y": math.inf, "z": math.inf}),)
    assert piece.skipped.damaged == 1


def test_a_line_without_an_end_is_passed_over_in_bounded_memory(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b'{"step": 0, "x": 1}\n{"step": 1, "x": "')
        file.write(b"a" * (5 * PIECE))
        file.write(b'"}\n{"step": 2, "x": 2}\n')
    source, place, rows, damaged = JsonLines(path), {}, [], 0
    for _ in range(10):
        piece = source.read(place)
        place, damaged = dict(piece.place), damaged + piece.skipped.damaged
        rows += piece.rows
        if not piece.more:
            break
    assert [row.step for row in rows] == [0, 2]
    assert damaged == 1


def test_it_may_begin_at_the_end(path: Path) -> None:
    written(path, '{"step": 0, "x": 1}\n{"step": 1, "x":')
    source = JsonLines(path)
    place = source.end()
    written(path, ' 1}\n{"step": 2, "x": 1}\n')
    assert [row.step for row in source.read(place).rows] == [1, 2]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TailError, match="cannot be read"):
        JsonLines(tmp_path / "pipe").read({})


def test_a_large_file_is_read_in_pieces(path: Path) -> None:
    line = json.dumps({"step": 1, "pad": {str(i): i for i in range(100)}})
    steps = 3 * PIECE // len(line)
    written(path, "".join(f'{{"step": {i}, "x": {i}, "y": "{"a" * len(line)}"}}\n' for i in range(steps)))
    source, place, rows, looks = JsonLines(path), {}, [], 0
    while True:
        piece = source.read(place)
        place, looks = dict(piece.place), looks + 1
        rows += piece.rows
        if not piece.more:
            break
    assert [row.step for row in rows] == list(range(steps))
    assert looks > 2
