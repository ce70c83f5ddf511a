"""Measures of a response's soundness, against explicit loops."""

from __future__ import annotations

import gzip
import math
import random

import pytest
import torch

from trimtab.trainer.tasks.garbage import (
    GarbageLimits,
    compression,
    entropy_bursts,
    invalid_share,
    is_garbage,
    longest_run,
    repetition,
)

LIMITS = GarbageLimits()
ENGLISH = (
    "The tank holds forty litres. A tap fills it at five litres a minute while a leak loses one, so the level rises by "
    "four litres each minute and the tank is full after ten. Had nobody mended the tap, it would never have been full."
)


@pytest.mark.parametrize("seed", range(5))
def test_repetition_counts_ngrams_that_were_there_before(seed: int) -> None:
    draw = random.Random(seed)
    tokens = [draw.randrange(3) for _ in range(draw.randrange(4, 60))]
    repeats = 0
    for start in range(len(tokens) - 3):
        repeats += any(tokens[start : start + 4] == tokens[before : before + 4] for before in range(start))
    assert repetition(tokens) == pytest.approx(repeats / (len(tokens) - 3))


def test_too_short_to_repeat() -> None:
    assert [repetition(tokens) for tokens in ([], [1], [1, 1, 1], [1, 1, 1, 1])] == [0.0] * 4


@pytest.mark.parametrize("seed", range(5))
def test_longest_run_is_found(seed: int) -> None:
    draw = random.Random(seed)
    tokens = [draw.randrange(2) for _ in range(50)]
    longest = 0
    for start in range(50):
        for stop in range(start + 1, 51):
            if len(set(tokens[start:stop])) == 1:
                longest = max(longest, stop - start)
    assert longest_run(tokens) == longest
    assert longest_run([]) == 0


def test_compression_is_that_of_gzip_without_its_header() -> None:
    for text in (ENGLISH, "ab" * 500, "é" * 100):
        raw = text.encode()
        # gzip wraps the same DEFLATE stream in 18 bytes, zlib in 6
        assert compression(text) == pytest.approx(len(raw) / (len(gzip.compress(raw, 6)) - 12))
    assert compression("") == 0.0
    assert compression("\ud800") > 0


def test_invalid_characters_are_counted() -> None:
    cases = {
        "": 0.0,
        "all fine\n\té漢🙂\r": 0.0,
        "\ufffd": 1.0,
        "ab\ufffd\x07": 0.5,
        "\x00\x1b\x7f\x85": 1.0,
        "abc\ud800": 0.25,
    }
    assert {text: invalid_share(text) for text in cases} == cases


@pytest.mark.parametrize("seed", range(4))
def test_entropy_bursts_against_loops(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 20, (12,), generator=generator)
    mask = (torch.arange(20) < lengths[:, None]).float()
    entropies = torch.rand(12, 20, generator=generator) ** 8
    live = [float(entropies[b, t]) for b in range(12) for t in range(20) if mask[b, t]]
    mean = sum(live) / len(live)
    limit = mean + 3 * math.sqrt(sum((value - mean) ** 2 for value in live) / len(live))
    expected = []
    for b in range(12):
        row = [float(entropies[b, t]) for t in range(20) if mask[b, t]]
        expected.append(sum(value > limit for value in row) / len(row) if row else 0.0)
    assert sum(expected) > 0
    assert entropy_bursts(entropies, mask).tolist() == pytest.approx(expected)


def test_a_response_that_is_noise_throughout_stands_out_of_its_batch() -> None:
    entropies = torch.full((16, 30), 0.1)
    entropies[5] = 8.0
    assert entropy_bursts(entropies, torch.ones(16, 30)).tolist() == [float(row == 5) for row in range(16)]


def test_equal_entropies_burst_nowhere_and_what_is_masked_does_not_count() -> None:
    entropies = torch.full((3, 7), 0.3)
    assert entropy_bursts(entropies, torch.ones(3, 7)).tolist() == [0.0] * 3
    mask = torch.ones(3, 7)
    mask[0, 4:] = 0
    entropies[0, 4:] = torch.nan
    assert entropy_bursts(entropies, mask).tolist() == [0.0] * 3
    assert entropy_bursts(entropies, torch.zeros(3, 7)).tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("tokens", "text", "bursts", "garbage"),
    [
        (list(range(60)), ENGLISH, 0.0, False),
        (list(range(60)), ENGLISH, 0.5, True),
        ([1, 2, 3] * 20, ENGLISH, 0.0, True),  # 57 4-grams, three of them distinct
        (list(range(30)) * 3, ENGLISH, 0.0, False),  # said three times
        ([*range(30), *[7] * 32], ENGLISH, 0.0, True),
        (list(range(60)), "no " * 200, 0.0, True),
        ([4, 4, 4, 4], "4444", 0.0, False),
        (list(range(60)), ENGLISH + "\ufffd", 0.0, False),  # cut off within a character
        (list(range(60)), ENGLISH + "\ufffd" * 20, 0.0, True),
        ([], "", 0.0, False),
    ],
)
def test_garbage_is_what_passes_a_limit(tokens: list[int], text: str, bursts: float, garbage: bool) -> None:
    assert is_garbage(tokens, text, bursts, LIMITS) is garbage


def test_limits_are_the_tasks_to_choose() -> None:
    assert not is_garbage([1, 2, 3] * 20, ENGLISH, 0.0, GarbageLimits(repetition=0.97))
