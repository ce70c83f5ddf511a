"""Final answers and exact numbers."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from trimtab.trainer.tasks.answers import extract_answer, last_number


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", ""),
        (" 42 \n", "42"),
        ("I think. Answer: 42", "42"),
        ("Answer: 1. No, ANSWER : 2\n3 ", "2\n3"),
        ("<answer>1</answer> so <Answer>\n2\n</Answer> done. Answer: 3", "2"),  # tags come first
        ("<answer>unclosed", "<answer>unclosed"),
        ("<answer></answer>", ""),
    ],
)
def test_the_final_answer_is_found(text: str, answer: str) -> None:
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", Fraction(42)),
        ("The answer is 42.", Fraction(42)),
        ("1,234", Fraction(1234)),
        ("$1,234,567.50", Fraction(123456750, 100)),
        ("-$5", Fraction(-5)),
        ("$-5", Fraction(-5)),
        ("-7", Fraction(-7)),
        ("\u22127 degrees", Fraction(-7)),
        ("10-3", Fraction(3)),  # a subtraction, not a negative number
        ("(2)-3", Fraction(3)),
        ("10 - 3 = 7", Fraction(7)),
        ("1/2", Fraction(1, 2)),
        ("-3 / 4", Fraction(-3, 4)),
        ("1.5/2", Fraction(3, 4)),
        (".25", Fraction(1, 4)),
        ("0.1", Fraction(1, 10)),  # exactly
        ("(1,2)", Fraction(2)),
        ("1,2345", Fraction(2345)),
        ("5kg", Fraction(5)),
        ("007", Fraction(7)),
        (r"\boxed{12}", Fraction(12)),
        ("3 apples and 4 pears", Fraction(4)),
        ("no number", None),
        ("x2", None),
        ("", None),
        ("1/0", None),
        ("9" * 101, None),
        ("9" * 5000, None),
    ],
)
def test_the_last_number_is_exact(text: str, number: Fraction | None) -> None:
    assert last_number(text) == number


@pytest.mark.parametrize("seed", range(3))
def test_numbers_are_read_however_they_are_written(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(200):
        value = Fraction(draw.randrange(-(10**9), 10**9), draw.choice([1, 1, 10, 100]))
        whole = f"{float(value):.2f}" if value.denominator > 1 else str(value.numerator)
        grouped = f"{float(value):,.2f}" if value.denominator > 1 else f"{value.numerator:,}"
        for text in (whole, grouped, f"so {grouped}.", f"{value.numerator}/{value.denominator}"):
            assert last_number(text) == value, text
