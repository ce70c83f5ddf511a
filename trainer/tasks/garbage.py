"""How to tell that a response is garbage, whatever its reward: repetition, broken text, bursts of entropy.

Everything here is measured on one response, so that it can be averaged over any set of them.
"""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

NGRAM = 4
BURST_DEVIATIONS = 3.0
SHORT = 32
"""Responses of fewer tokens are never called repetitive: `1 1 1 1` may be the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageLimits:
    """From where on a response is garbage; any one will do.

    Prose, code and long sums stay below the first three, by a factor of two or more; an answer that is a large grid of
    zeros does not, so that a task which asks for one needs wider limits.
    """

    repetition: float = 0.8
    """Share of 4-grams that are repeats: a loop that was gone through five times."""
    longest_run: int = 32
    """The same token so many times in a row."""
    compression: float = 8.0
    """Bytes of text for each byte that DEFLATE needs."""
    invalid_text: float = 0.05
    """Share of characters. A response cut off within a character ends in one that is invalid, which is no fault."""
    entropy_bursts: float = 0.2
    """Share of tokens."""


def repetition(tokens: Sequence[int]) -> float:
    """1 - distinct 4-grams / all 4-grams; 0 for fewer than four tokens.

    >>> repetition([1, 2, 1, 2, 1, 2, 1])
    0.5
    """
    ngrams = [tuple(tokens[start : start + NGRAM]) for start in range(len(tokens) - NGRAM + 1)]
    return 1.0 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def longest_run(tokens: Sequence[int]) -> int:
    """The most times that one token follows itself, the first time counted; 0 without tokens.

    >>> longest_run([5, 7, 7, 7, 5])
    3
    """
    return max((sum(1 for _ in run) for _, run in groupby(tokens)), default=0)


def compression(text: str) -> float:
    """Bytes of UTF-8 over bytes after DEFLATE (gzip without its header); 0 without text."""
    # "surrogatepass": a tokenizer may decode to half a pair, which UTF-8 has no bytes for
    raw = text.encode("utf-8", "surrogatepass")
    return len(raw) / len(zlib.compress(raw, 6)) if raw else 0.0


def invalid_share(text: str) -> float:
    """Share of characters that are U+FFFD, which stands for bytes that are no UTF-8, half a surrogate pair, or a
    control character other than tab, line feed and carriage return; 0 without text.

    >>> invalid_share("ok\\ufffd\\x00")
    0.5
    """
    invalid = sum(1 for c in text if c == "\ufffd" or (unicodedata.category(c) in ("Cc", "Cs") and c not in "\t\n\r"))
    return invalid / len(text) if text else 0.0


def entropy_bursts(entropies: Tensor, mask: Tensor) -> Tensor:
    """[B] share of each response's tokens whose entropy is above the batch's mean by more than three of its standard
    deviations.

    The yardstick is the batch of [B, T] entropies where `mask` is 1, not the response itself: at most a tenth of any
    set of numbers is three deviations above its own mean (Cantelli), so a response that is noise from end to end would
    look calm by its own. By the batch's it stands out, as long as no more than a tenth of the batch is like it; beyond
    that the mean entropy tells. A response without tokens has 0.
    """
    live = mask > 0
    values = entropies.double()
    count = live.sum().clamp_min(1)
    mean = torch.where(live, values, 0.0).sum() / count
    variance = torch.where(live, (values - mean).square(), 0.0).sum() / count
    burst = live & (values > mean + BURST_DEVIATIONS * variance.sqrt())
    return (burst.sum(1) / live.sum(1).clamp_min(1)).float()


def is_garbage(tokens: Sequence[int], text: str, bursts: float, limits: GarbageLimits) -> bool:
    """Whether a response of `tokens`, which decode to `text`, passes one of the limits.

    `bursts` is its share of entropy bursts, 0 if unknown.
    """
    if invalid_share(text) > limits.invalid_text or bursts > limits.entropy_bursts:
        return True
    if len(tokens) < SHORT:
        return False
    return (
        repetition(tokens) > limits.repetition
        or longest_run(tokens) >= limits.longest_run
        or compression(text) > limits.compression
    )
