"""The tokenizer without a vocabulary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trimtab.trainer.tasks.characters import CharacterTokenizer

TOKENIZER = CharacterTokenizer()


@given(st.text())
def test_text_survives(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert ids == list(text.encode("utf-8"))
    assert TOKENIZER.decode(ids) == text
    assert TOKENIZER.decode([TOKENIZER.pad_token_id, *ids, TOKENIZER.eos_token_id]) == text


@given(st.lists(st.integers(-3, 300)))
def test_any_ids_decode(ids: list[int]) -> None:
    expected = bytes(token if 0 <= token < 256 else 0xFF for token in ids).decode("utf-8", "replace")
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == expected


def test_special_tokens_are_the_last_two() -> None:
    assert len(TOKENIZER) == 258
    assert {TOKENIZER.pad_token_id, TOKENIZER.eos_token_id} == {256, 257}
    assert TOKENIZER.decode([256, 52, 257], skip_special_tokens=False) == "\ufffd4\ufffd"
