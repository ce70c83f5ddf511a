"""A tokenizer without a vocabulary file: UTF-8 bytes, so that any text can be trained on with any small model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

BYTES = 256


@dataclass(frozen=True, slots=True)
class CharacterTokenizer:
    """Token ids are the bytes of the text, and behind them the padding and the end; what a Hugging Face tokenizer calls
    the same is called the same.

    >>> tokenizer = CharacterTokenizer()
    >>> tokenizer.encode("2+2=\u00e9")
    [50, 43, 50, 61, 195, 169]
    >>> tokenizer.decode([52, tokenizer.eos_token_id])
    '4'
    """

    pad_token_id: ClassVar[int] = BYTES
    eos_token_id: ClassVar[int] = BYTES + 1
    chat_template: ClassVar[None] = None

    def __len__(self) -> int:
        """Ids that it knows."""
        return BYTES + 2

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:  # noqa: ARG002
        """The bytes of `text`; there are no tokens to add. Half a surrogate pair is a question mark."""
        return list(text.encode("utf-8", "replace"))

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of `token_ids`, with U+FFFD for bytes that are no UTF-8 and for ids beyond all that it knows.

        The padding and the end are left out, or are U+FFFD as well.
        """
        special = (self.pad_token_id, self.eos_token_id)
        kept = [token for token in token_ids if not (skip_special_tokens and token in special)]
        # 0xFF is in no UTF-8, and so stands for whatever is no byte.
        return bytes(token if 0 <= token < BYTES else 0xFF for token in kept).decode("utf-8", "replace")
