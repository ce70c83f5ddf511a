"""Event files of the real writer, damaged in every way that a disk or a crash knows."""

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from trimtab.api.tail.source import Place, Row, TailError
from trimtab.api.tail.tensorboard import TensorBoard
from trimtab.api.tail.tfrecord import masked_crc, records

STEPS = 30


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the real library has written."""
    pytest.importorskip("tensorboard")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.utils.tensorboard import SummaryWriter
    folder = tmp_path_factory.mktemp("events")
    writer = SummaryWriter(str(folder))
    writer.add_text("config", "a text is no number", 0)
    writer.add_histogram("weights", np.arange(10.0), 0)
    for step in range(STEPS):
        writer.add_scalar("loss", float("nan") if step == 7 else step / 4, step)
        writer.add_scalar("reward", 0.5, step, new_style=True)
    writer.close()
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "events"))


def the_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def all_rows(source: TensorBoard, place: Place | None = None) -> Iterator[Row]:
    place = place or {}
    while True:
        piece = source.read(place)
        yield from piece.rows
        place = piece.place
        if not piece.more:
            return


def test_scalars_of_both_styles_are_read(folder: Path) -> None:
    piece = TensorBoard(folder).read({})
    losses = {row.step: row.values["loss"] for row in piece.rows if "loss" in row.values}
    assert {step: value for step, value in losses.items() if step != 7} == {i: i / 4 for i in range(STEPS) if i != 7}
    assert np.isnan(losses[7])
    assert [row.step for row in piece.rows if row.values.get("reward") == 0.5] == list(range(STEPS))
    assert piece.skipped.not_numbers == 2
    assert piece.skipped.damaged == 0
    assert all(row.time is not None and row.time > 1e9 for row in piece.rows)


def test_our_checksum_is_that_of_the_format() -> None:
    # The value for "123456789" is given with the polynomial (RFC 3720, B.4); the mask is the format's.
    assert masked_crc(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_every_cut_gives_a_beginning_and_the_rest_comes_later(folder: Path) -> None:
    path, source = the_file(folder), TensorBoard(folder)
    data = path.read_bytes()
    whole = list(all_rows(source))
    for cut in [*range(0, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:cut])
        piece = source.read({})
        assert repr(list(piece.rows)) == repr(whole[: len(piece.rows)])  # one of them is NaN
        assert piece.skipped.damaged == 0
        with path.open("ab") as file:
            file.write(data[cut:])
        rest = source.read(piece.place).rows
        assert repr([*piece.rows, *rest]) == repr(whole)


def test_a_damaged_payload_costs_one_record(folder: Path) -> None:
    path, whole = the_file(folder), list(all_rows(TensorBoard(folder)))
    data = bytearray(path.read_bytes())
    ends = [record.end for record in records(bytes(data), left=0)]
    data[ends[20] + 14] ^= 0xFF
    path.write_bytes(bytes(data))
    piece = TensorBoard(folder).read({})
    assert len(piece.rows) == len(whole) - 1
    assert piece.skipped.damaged == 1


def test_behind_a_damaged_length_the_next_record_is_found(folder: Path) -> None:
    path, whole = the_file(folder), list(all_rows(TensorBoard(folder)))
    data = bytearray(path.read_bytes())
    ends = [record.end for record in records(bytes(data), left=0)]
    data[ends[20] : ends[20] + 8] = struct.pack("<Q", 1 << 60)
    path.write_bytes(bytes(data))
    piece = TensorBoard(folder).read({})
    assert len(piece.rows) == len(whole) - 1
    assert piece.skipped.damaged == 1


def test_garbage_ends_nothing(folder: Path) -> None:
    path = the_file(folder)
    path.write_bytes(np.random.default_rng(0).bytes(200_000))
    source, place = TensorBoard(folder), {}
    piece = source.read(place)
    assert piece.rows == ()
    assert source.read(piece.place).rows == ()
    length = struct.pack("<Q", (1 << 39))
    path.write_bytes(length + struct.pack("<I", masked_crc(length)) + b"a record that says it has 512 GiB")
    assert source.read({}).rows == ()


def test_a_record_larger_than_a_look_is_passed_over(folder: Path) -> None:
    path, whole = the_file(folder), list(all_rows(TensorBoard(folder)))
    data, large = path.read_bytes(), b"\0" * (3 << 20)
    length = struct.pack("<Q", len(large))
    framed = length + struct.pack("<I", masked_crc(length)) + large + b"crc!"
    path.write_bytes(framed + data)
    assert [row.step for row in all_rows(TensorBoard(folder))] == [row.step for row in whole]


def event(step: int, time: float) -> bytes:
    """A framed event with the scalar `x`, 0.5."""
    value = b"\x0a\x01x\x15" + struct.pack("<f", 0.5)
    summary = b"\x0a" + bytes([len(value)]) + value
    number, digits = step & (1 << 64) - 1, b""
    while number > 127:
        digits, number = digits + bytes([number & 127 | 128]), number >> 7
    payload = b"\x09" + struct.pack("<d", time) + b"\x10" + digits + bytes([number])
    payload += b"\x2a" + bytes([len(summary)]) + summary
    length = struct.pack("<Q", len(payload))
    return length + struct.pack("<I", masked_crc(length)) + payload + struct.pack("<I", masked_crc(payload))


def test_no_step_and_no_time_is_one_that_cannot_be(tmp_path: Path) -> None:
    events = [
        (1, 2.0),
        (2**53 - 1, 3.0),
        (2**53, 4.0),
        (2**63 - 1, 5.0),
        (-1, 6.0),
        (2, float("nan")),
        (3, float("-inf")),
        (4, float("inf")),
        (5, 7.0),
    ]
    (tmp_path / "events.out.tfevents.1").write_bytes(b"".join(event(*each) for each in events))
    rows = TensorBoard(tmp_path).read({}).rows
    assert [(row.step, row.time) for row in rows] == [
        (1, 2.0),
        (2**53 - 1, 3.0),
        (None, 4.0),
        (None, 5.0),
        (None, 6.0),
        (2, None),
        (3, None),
        (4, None),
        (5, 7.0),
    ]


def test_files_of_one_folder_are_one_log_in_the_order_of_time(folder: Path) -> None:
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    whole = list(all_rows(TensorBoard(folder)))
    times = sorted(row.time or 0.0 for row in whole)
    writer = SummaryWriter(str(folder), filename_suffix=".other")
    for step in range(STEPS):  # as if it had written at the same time as the first
        writer.add_scalar("entropy", step, step, walltime=times[2 * step])
    writer.close()
    rows = list(all_rows(TensorBoard(folder)))
    assert len(rows) == len(whole) + STEPS
    assert [row.time for row in rows] == sorted(row.time or 0.0 for row in rows)


def test_an_empty_folder_waits_and_a_missing_one_is_named(tmp_path: Path) -> None:
    assert TensorBoard(tmp_path).read({}).rows == ()
    with pytest.raises(TailError, match="is not there"):
        TensorBoard(tmp_path / "none").read({})
