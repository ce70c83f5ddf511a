"""The offline log of W&B: framing and messages as the real library writes them, and what damage costs."""

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from trimtab.api.tail.source import Row, TailError
from trimtab.api.tail.wandb import WandbLog
from trimtab.api.tail.wandb_log import BLOCK, HEADER, MAGIC


def framed(payloads: list[bytes]) -> bytes:
    """A log of these records, from the description of LevelDB's format."""
    log = bytearray(MAGIC + b"\xe1\xbe\x00")
    for payload in payloads:
        at, first = 0, True
        while first or at < len(payload):
            room = BLOCK - len(log) % BLOCK
            if room < HEADER:
                log += b"\0" * room
                continue
            piece = payload[at : at + room - HEADER]
            last = at + len(piece) == len(payload)
            kind = (1 if last else 2) if first else (4 if last else 3)
            log += struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
            at, first = at + len(piece), False
    return bytes(log)


def record(step: int, **values: object) -> bytes:
    """A history record, made by the real library's messages."""
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    made = messages.Record(num=step)
    made.history.step.num = step
    for key, value in {**values, "_step": step, "_timestamp": 1796000000.0 + step, "_runtime": 1.0}.items():
        item = made.history.item.add(value_json=json.dumps(value))
        item.nested_key.extend(key.split("__"))
    data: bytes = made.SerializeToString()
    return data


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run-abc.wandb"


def test_history_is_read_and_the_rest_passed_over(path: Path) -> None:
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    other = messages.Record(num=9)
    other.output.line = "loss 0.5"
    path.write_bytes(framed([other.SerializeToString(), record(0, loss=0.5, text="a"), record(1, a__b=float("nan"))]))
    piece = WandbLog(path).read({})
    assert piece.rows[0] == Row(step=0, time=1796000000.0, values={"loss": 0.5})
    assert np.isnan(piece.rows[1].values["a.b"])
    assert (piece.skipped.not_numbers, piece.skipped.damaged) == (1, 0)


def test_records_over_many_blocks_come_whole_at_every_cut(path: Path) -> None:
    values = {f"key/{i}": i / 8 for i in range(400)}
    data = framed([record(step, **values) for step in range(20)])
    assert len(data) > 4 * BLOCK
    source = WandbLog(path)
    for cut in [*range(0, len(data), 4099), len(data)]:
        path.write_bytes(data[:cut])
        first = source.read({})
        assert first.skipped.damaged == 0
        with path.open("ab") as file:
            file.write(data[cut:])
        rest = source.read(first.place)
        rows = [*first.rows, *rest.rows]
        assert [row.step for row in rows] == list(range(20)), cut
        assert all(row.values == values for row in rows)


def test_damage_costs_no_more_than_its_block(path: Path) -> None:
    data = bytearray(framed([record(step, loss=step / 4) for step in range(3000)]))
    assert len(data) > 5 * BLOCK
    data[BLOCK + 5000] ^= 0xFF
    path.write_bytes(bytes(data))
    piece = WandbLog(path).read({})
    steps = [row.step for row in piece.rows]
    assert steps == sorted(set(steps))
    assert 3000 - len(steps) < BLOCK / 60
    assert steps[-1] == 2999
    assert piece.skipped.damaged in (1, 2)  # the fragment, and what may begin in its block


def test_space_that_is_not_written_yet_is_waited_for(path: Path) -> None:
    data = framed([record(step, loss=0.5) for step in range(10)])
    path.write_bytes(data + b"\0" * 4096)
    piece = WandbLog(path).read({})
    assert len(piece.rows) == 10
    assert piece.place["offset"] == len(data)
    more = framed([record(step, loss=0.5) for step in range(11)])
    path.write_bytes(more)
    assert [row.step for row in WandbLog(path).read(piece.place).rows] == [10]


def test_another_header_is_named(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0")
    with pytest.raises(TailError, match=r"run-abc\.wandb: begins with b'SQLi' and not b':W&B'"):
        WandbLog(path).read({})
    path.write_bytes(MAGIC + b"\xe1\xbe\x07")
    with pytest.raises(TailError, match="of version 7, which is not known"):
        WandbLog(path).read({})
    path.write_bytes(b":W")  # its beginning
    assert WandbLog(path).read({}).rows == ()


def test_garbage_and_a_record_without_end_are_bounded(path: Path) -> None:
    rng = np.random.default_rng(1)
    path.write_bytes(MAGIC + b"\xe1\xbe\x00" + rng.bytes(10 * BLOCK))
    source, place = WandbLog(path), {}
    for _ in range(5):
        piece = source.read(place)
        place = dict(piece.place)
        assert piece.rows == ()
    data = framed([record(0, loss=1.0), record(1, loss=1.0) + b"\xd2\x01" + b"\x80\x80\x80\x02" + b"a" * (4 << 20)])
    path.write_bytes(data)
    rows, place = [], {}
    for _ in range(12):
        piece = source.read(place)
        place = dict(piece.place)
        rows += piece.rows
        if not piece.more:
            break
    assert [row.step for row in rows] == [0]
