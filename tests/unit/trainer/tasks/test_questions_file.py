"""Questions from a file."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from trimtab.trainer.tasks.characters import CharacterTokenizer
from trimtab.trainer.tasks.questions_file import QuestionsFile, read_questions

LINES = [
    {"question": "Two and two?", "answer": "2 + 2 = <<2+2=4>>4\n#### 4"},
    {"question": "How dear?", "answer": "It is\n#### $1,234.50", "more": "is ignored"},
    {"question": "How cold?", "answer": "#### -3"},
    {"question": "What part?", "answer": "#### 1/3."},
]


def test_questions_are_read_with_their_numbers(tmp_path: Path) -> None:
    path = written(tmp_path, *map(json.dumps, LINES), "")
    assert read_questions(path) == [
        ("Two and two?", Fraction(4)),
        ("How dear?", Fraction(2469, 2)),
        ("How cold?", Fraction(-3)),
        ("What part?", Fraction(1, 3)),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 2: Expecting property name"),
        ("[1]", "line 2: is no object"),
        ('{"question": "x"}', "line 2: answer: is missing"),
        ('{"question": 3, "answer": "#### 1"}', "line 2: question: is missing, or no text"),
        ('{"question": "x", "answer": "1"}', "line 2: answer: does not end in #### and a number"),
        ('{"question": "x", "answer": "1 #### none"}', "line 2: answer: does not end in #### and a number"),
    ],
)
def test_a_malformed_line_is_refused_by_its_number(tmp_path: Path, line: str, reason: str) -> None:
    path = written(tmp_path, json.dumps(LINES[0]), line)
    with pytest.raises(ValueError, match=rf"questions\.jsonl, {reason}"):
        read_questions(path)


def test_a_line_that_is_no_text_is_refused_by_its_number(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(LINES[0]))
    path.write_bytes(path.read_bytes() + b"\n\xff\xfe")
    with pytest.raises(ValueError, match=r"questions\.jsonl, line \d: .*can't decode"):
        read_questions(path)


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no questions"):
        read_questions(written(tmp_path, "", " "))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_questions(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("2 + 2 = 4\n#### 4", 1.0),
        ("#### 5 no, #### 4", 1.0),
        ("4 #### 5", 0.0),
        ("Answer: 4.0", 1.0),
        ("<answer>8/2</answer>", 1.0),
        ("It must be 4.", 1.0),
        ("It must be four.", 0.0),
        ("#### ", 0.0),
        ("", 0.0),
    ],
)
def test_the_number_must_be_exact(tmp_path: Path, text: str, reward: float) -> None:
    task = QuestionsFile(written(tmp_path, json.dumps(LINES[0])), CharacterTokenizer(), response_length=32)
    (_, problem), *_ = task.draw(1, torch.Generator())
    assert task.score(problem, text) == reward


def test_every_question_is_drawn_with_its_own_number(tmp_path: Path) -> None:
    path = written(tmp_path, *map(json.dumps, LINES))
    task = QuestionsFile(path, CharacterTokenizer(), response_length=32, instruction="")
    prompts = task.prompts(200, torch.Generator().manual_seed(1))
    asked = {
        (bytes(row[skip:]).decode(), number)
        for row, skip, number in zip(prompts.tokens.tolist(), prompts.padding.tolist(), prompts.problems, strict=True)
    }
    assert asked == set(read_questions(path))
    assert prompts.tokens.equal(task.prompts(200, torch.Generator().manual_seed(1)).tokens)


def written(folder: Path, *lines: str) -> Path:
    path = folder / "questions.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
