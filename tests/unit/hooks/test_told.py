"""What the ranks tell each other survives being summed with what the others leave empty."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trimtab.hooks.controls import CHOICES, CONTROL_NAMES, NUMERIC_BOUNDS
from trimtab.hooks.fence import Accepted
from trimtab.hooks.told import BLOCK, CAPACITY, Told
from trimtab.hooks.wire import NON_FINITE, encode

names = st.text(max_size=20).filter(lambda text: text not in NON_FINITE)  # these are numbers on the wire
accepted = st.builds(
    Accepted,
    generation=st.integers(1, 2**53),
    overrides=st.dictionaries(st.text(max_size=9), st.booleans() | st.floats(allow_nan=False) | names),
    refusals=st.lists(st.text(max_size=80), max_size=3).map(tuple),
)


@given(accepted, st.integers(0, 2**53), st.booleans(), st.integers(0, 5))
def test_rank_0_is_heard_over_any_number_of_others(said: Accepted, attempt: int, off: bool, others: int) -> None:
    block = Told(attempt=attempt, off=off, accepted=said).block()
    for _ in range(others):
        block += Told(failed=1, stopped=1).block()
    assert Told.of(block) == Told(
        attempt=attempt, off=off, accepted=said, ranks=1 + others, failed=others, stopped=others
    )


def test_nothing_to_say_is_nothing_to_change() -> None:
    assert Told.of(Told().block() + Told().block()) == Told(ranks=2)
    assert Told().block().shape == (BLOCK,)


def test_every_control_at_once_fits_twice() -> None:
    longest = {name: max(CHOICES.get(name, ("nvfp4-pretrain-and-more",)), key=len) for name in CONTROL_NAMES}
    everything = longest | dict.fromkeys(NUMERIC_BOUNDS, -math.pi * 1e-300)
    assert Told(accepted=Accepted(generation=2**52, overrides=everything)).block()[5] <= CAPACITY / 2


def test_what_does_not_fit_is_refused_and_says_how_large_it_was() -> None:
    large = Accepted(generation=4, overrides={"clip_low": 0.1}, refusals=("x" * CAPACITY,))
    size = len(encode(large))
    refusal = f"overrides: {size} bytes with the reasons of those refused, at most {CAPACITY}"
    assert Told.of(Told(accepted=large).block()).accepted == Accepted(generation=4, refusals=(refusal,))


def test_every_length_is_read_back() -> None:
    for length in range(20):
        said = Accepted(generation=1, refusals=("é" * length,))
        block = Told(accepted=said).block()
        assert (block == np.floor(block)).all()
        assert Told.of(block).accepted == said
