"""The final answer in a response, and the exact number in an answer."""

from __future__ import annotations

import re
from fractions import Fraction

_TAGS = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_MARK = re.compile(r"answer\s*:", re.IGNORECASE)

_MAGNITUDE = r"(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
_NUMBER = re.compile(
    # A minus belongs to the number unless it stands behind an operand, as in 10-3. No number starts within a word.
    rf"(?P<sign>(?<![\w).])-)?(?<![\w.])(?:\$(?P<minus>-)?)?(?P<top>{_MAGNITUDE})(?:\s*/\s*(?P<bottom>{_MAGNITUDE}))?"
)
MAX_DIGITS = 100
"""A longer number is none: a policy that repeats a digit must not cost time."""


def extract_answer(text: str) -> str:
    """The final answer in `text`, without the white space around it.

    That is what the last `<answer>...</answer>` encloses; else what follows the last `Answer:`; else the whole text.
    Case does not matter.

    >>> extract_answer("It is 3. No: <answer> 4 </answer>.")
    '4'
    >>> extract_answer("2 + 2 = 4, so the final answer: 4")
    '4'
    """
    tagged = _TAGS.findall(text)
    if tagged:
        return str(tagged[-1]).strip()
    marks = list(_MARK.finditer(text))
    return text[marks[-1].end() :].strip() if marks else text.strip()


def last_number(text: str) -> Fraction | None:
    """The last number in `text`, exactly; None if there is none.

    Commas between thousands, a dollar sign, a period behind it, decimals, a minus sign (hyphen or U+2212) and fractions
    are understood. A number with more than a hundred digits or a denominator of zero is none.

    >>> last_number("It costs $1,234.50.")
    Fraction(2469, 2)
    >>> last_number("x = -1/2")
    Fraction(-1, 2)
    """
    numbers = list(_NUMBER.finditer(text.replace("\u2212", "-")))
    if not numbers or len(numbers[-1].group()) > MAX_DIGITS:
        return None
    found = numbers[-1]
    top, bottom = (Fraction((found[part] or "1").replace(",", "")) for part in ("top", "bottom"))
    if bottom == 0:
        return None
    return -top / bottom if bool(found["sign"]) != bool(found["minus"]) else top / bottom
