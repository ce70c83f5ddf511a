"""What is packed comes back as it was."""

import math
import struct
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from trimtab.storage.packing import SMALL, packed, packed_floats, unpacked, unpacked_floats


@given(st.text(max_size=2 * SMALL))
def test_text_comes_back(text: str) -> None:
    assert unpacked(packed(text)) == text


def test_only_what_is_long_is_compressed() -> None:
    assert packed("x" * (SMALL - 1)) == b"x" * (SMALL - 1)
    assert len(packed("x" * 100_000)) < 100


def test_text_that_was_never_compressed_is_read_too() -> None:
    assert unpacked(('{"a": "' + "x" * 100_000 + '"}').encode()) == '{"a": "' + "x" * 100_000 + '"}'


def test_threads_do_not_disturb_each_other() -> None:
    texts = [str(n) * 5000 for n in range(200)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: unpacked(packed(text)), texts)) == texts


@given(st.lists(st.floats()))
def test_floats_come_back_bit_for_bit(values: list[float]) -> None:
    back = unpacked_floats(packed_floats(values))
    assert [struct.pack("<d", one) for one in back] == [struct.pack("<d", one) for one in values]


def test_what_is_not_finite_is_what_it_was() -> None:
    nan, up, down, zero = unpacked_floats(packed_floats([math.nan, math.inf, -math.inf, -0.0]))
    assert math.isnan(nan)
    assert (up, down, math.copysign(1, zero)) == (math.inf, -math.inf, -1)
