"""The spool on real disks: torn, damaged, capped, read-only."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from trimtab.hooks.emitter import Emitter
from trimtab.hooks.records import StepSummary
from trimtab.hooks.transport.file import FileTransport
from trimtab.hooks.transport.spool import Spool, read_spool
from trimtab.hooks.wire import WireError, encode


def record(step: int) -> bytes:
    return encode(StepSummary(job="run", attempt=1, step=step))


def steps(directory: Path) -> list[int]:
    return [summary.step for summary in read_spool(directory)]


def test_a_recorded_run_reads_back_as_it_was(tmp_path: Path) -> None:
    emitter = Emitter(FileTransport(tmp_path / "deep" / "run"), job="run", attempt=7)
    for step in range(5):
        emitter.end_step(step=step, scalars={"loss": float("nan"), "reward_mean": 0.5})
    emitter.close()
    read = list(read_spool(tmp_path / "deep" / "run"))
    assert [(summary.attempt, summary.step) for summary in read] == [(7, step) for step in range(5)]
    assert str(read[0].scalars) == "{'loss': nan, 'reward_mean': 0.5}"
    assert (emitter.failures, emitter.transport.dropped) == (0, 0)


def test_records_queue_first_in_first_out_over_many_segments(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=2_000)
    assert spool.peek() is None
    for step in range(30):
        assert spool.append(record(step))
    assert len(list(tmp_path.glob("*.spool"))) > 3
    seen = []
    while (payload := spool.peek()) is not None:
        seen.append(json.loads(payload)["step"])
        spool.pop()
    assert seen == list(range(30))
    assert list(tmp_path.glob("*.spool")) == []
    assert spool.append(record(30))
    assert json.loads(spool.peek() or b"")["step"] == 30


def test_the_cap_deletes_the_oldest_segment_and_counts_its_records(tmp_path: Path) -> None:
    spool = Spool(tmp_path, cap_bytes=10_000, segment_bytes=2_000)
    for step in range(100):
        assert spool.append(record(step))
    spool.close()
    kept = steps(tmp_path)
    assert kept == list(range(100 - len(kept), 100))
    assert spool.dropped == 100 - len(kept) > 0
    assert sum(path.stat().st_size for path in tmp_path.glob("*.spool")) <= 10_000 + len(record(0)) + 8


@pytest.mark.parametrize("cut", [1, 7, 9, 100])
def test_a_torn_tail_is_left_out(tmp_path: Path, cut: int) -> None:
    spool = Spool(tmp_path)
    for step in range(3):
        spool.append(record(step))
    spool.close()
    segment = next(tmp_path.glob("*.spool"))
    os.truncate(segment, segment.stat().st_size - cut)
    assert steps(tmp_path) == [0, 1]
    again = Spool(tmp_path)
    again.append(record(3))
    again.close()
    assert steps(tmp_path) == [0, 1, 3]


def damage(directory: Path, *places: int) -> Path:
    """Flip a bit in the directory's only segment at each of the places."""
    (segment,) = directory.glob("*.spool")
    content = bytearray(segment.read_bytes())
    for place in places:
        content[place] ^= 1
    segment.write_bytes(content)
    return segment


def drained(spool: Spool) -> list[int]:
    seen = []
    while (payload := spool.peek()) is not None:
        seen.append(json.loads(payload)["step"])
        spool.pop()
    return seen


SIZE = len(record(0)) + 8


@pytest.mark.parametrize(
    ("places", "left"),
    [
        ((20,), [1, 2, 3, 4]),
        ((SIZE + 20,), [0, 2, 3, 4]),
        ((SIZE + 20, 2 * SIZE + 20), [0, 3, 4]),
        ((SIZE + 20, 3 * SIZE + 5), [0, 2, 4]),
        ((4 * SIZE + 20,), [0, 1, 2, 3]),
        ((3 * SIZE + 20, 4 * SIZE + 20), [0, 1, 2]),
        (tuple(i * SIZE + 20 for i in range(5)), []),
    ],
)
def test_only_damaged_records_are_left_out_and_each_is_counted(
    tmp_path: Path, places: tuple[int, ...], left: list[int]
) -> None:
    spool = Spool(tmp_path)
    for step in range(5):
        spool.append(record(step))
    spool.close()
    damage(tmp_path, *places)
    assert steps(tmp_path) == left
    again = Spool(tmp_path)
    assert drained(again) == left
    assert again.dropped == 5 - len(left)
    assert again.append(record(5))
    assert (drained(again), again.dropped) == ([5], 5 - len(left))


def test_whatever_byte_of_a_record_is_damaged_its_neighbours_are_read(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for step in range(3):
        spool.append(record(step))
    spool.close()
    for place in range(SIZE, 2 * SIZE):
        damage(tmp_path, place)
        assert steps(tmp_path) == [0, 2], f"byte {place - SIZE}"
        damage(tmp_path, place)


def test_zeros_that_a_power_cut_leaves_are_no_records(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append(record(0))
    spool.close()
    (segment,) = tmp_path.glob("*.spool")
    os.truncate(segment, SIZE + 5_000)
    again = Spool(tmp_path)
    assert (drained(again), again.dropped) == ([0], 1)


def test_records_that_the_cap_deletes_are_counted_damaged_or_not(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for step in range(5):
        spool.append(record(step))
    spool.close()
    damage(tmp_path, SIZE + 20)
    again = Spool(tmp_path, cap_bytes=SIZE, segment_bytes=SIZE)
    assert again.append(record(5))
    assert (again.dropped, drained(again)) == (5, [5])


def test_a_segment_that_cannot_be_read_now_stays_and_is_read_later(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=2 * SIZE)
    for step in range(6):
        spool.append(record(step))
    assert spool.peek() == record(0)
    oldest, aside = min(tmp_path.glob("*.spool")), tmp_path / "aside"
    oldest.rename(aside)
    oldest.symlink_to(oldest)  # opening it fails, whoever does, as on a disk that fails
    assert (spool.peek(), spool.claimed) == (None, True)
    assert isinstance(spool.unread, OSError)
    spool.pop()
    with pytest.raises(OSError, match=oldest.name):
        steps(tmp_path)
    aside.replace(oldest)
    assert (drained(spool), spool.unread, spool.dropped) == ([1, 2, 3, 4, 5], None, 0)


def test_a_whole_record_that_is_no_summary_is_an_error(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append(b'{"job": "run"}')
    spool.close()
    with pytest.raises(WireError, match=r"StepSummary\.attempt: is missing"):
        steps(tmp_path)


def test_two_processes_never_share_a_directory(tmp_path: Path) -> None:
    first, second = Spool(tmp_path), Spool(tmp_path)
    assert first.append(record(0))
    assert not second.append(record(1))
    assert second.peek() is None
    assert (isinstance(second.unread, BlockingIOError), second.claimed) == (True, False)
    first.close()
    assert second.append(record(1))
    assert steps(tmp_path) == [0, 1]


def test_closing_takes_off_the_disk_what_was_popped(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for step in range(5):
        spool.append(record(step))
    for _ in range(2):
        spool.pop()
    assert spool.count() == 3
    spool.close()
    assert steps(tmp_path) == [2, 3, 4]
    assert not spool.append(record(5))
    assert spool.peek() is None
    again = Spool(tmp_path)
    for _ in range(3):
        again.pop()
    again.close()
    assert (steps(tmp_path), [path.name for path in tmp_path.iterdir()]) == ([], ["lock"])


def test_a_place_where_no_directory_can_be_is_counted_not_raised(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    emitter = Emitter(FileTransport(tmp_path / "file" / "run"), job="run", attempt=1)
    for step in range(4):
        emitter.end_step(step=step)
    emitter.close()
    assert (emitter.transport.dropped, emitter.failures) == (4, 0)
