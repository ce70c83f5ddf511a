"""Questions with numbers for answers, from a file in the format of GSM8K (Cobbe et al. 2021, arXiv:2110.14168)."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from trimtab.trainer.tasks.answers import extract_answer, last_number
from trimtab.trainer.tasks.garbage import GarbageLimits
from trimtab.trainer.tasks.text import TextTask, Tokenizer

MARK = "####"
INSTRUCTION = f'Think step by step, and end with "{MARK}" and the number that is the answer.'


class QuestionsFile(TextTask):
    """Questions from a JSON Lines file; the reward is 1 for the exact number and 0 otherwise.

    A line is an object with a `question` and an `answer`, both text, whose answer ends in `#### 42`. The number that a
    response gives is the last one behind its last `####`, or else in its `extract_answer`.

    Args:
        path: the file. Blank lines are skipped.
        tokenizer: of the model.
        response_length: most tokens that a response may have.
        instruction: how to answer.
        limits: from where on a response is garbage.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line that is malformed, by its number, or a file without questions.
    """

    def __init__(
        self,
        path: str | Path,
        tokenizer: Tokenizer,
        *,
        response_length: int,
        instruction: str = INSTRUCTION,
        limits: GarbageLimits | None = None,
    ) -> None:
        super().__init__(tokenizer, response_length=response_length, instruction=instruction, limits=limits)
        self.questions = read_questions(Path(path).expanduser())

    def draw(self, count: int, generator: torch.Generator) -> list[tuple[str, Fraction]]:
        """Questions drawn with replacement."""
        index = torch.randint(len(self.questions), (count,), generator=generator)
        return [self.questions[row] for row in index.tolist()]

    def score(self, problem: Fraction, text: str) -> float:
        """1.0 if the number in `text` is `problem`."""
        marked = text.rpartition(MARK)
        return float(last_number(marked[2] if marked[1] else extract_answer(text)) == problem)


def read_questions(path: Path) -> list[tuple[str, Fraction]]:
    """Questions and their numbers; see `QuestionsFile`."""
    questions = []
    with path.open("rb") as lines:  # decoded below, so that a line that is no UTF-8 is told by its number
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    questions.append(_question(line.decode("utf-8")))
                except ValueError as error:
                    raise ValueError(f"{path}, line {number}: {error}") from error
    if not questions:
        raise ValueError(f"{path}: holds no questions")
    return questions


def _question(line: str) -> tuple[str, Fraction]:
    record: Any = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError("is no object with question and answer")
    for field in ("question", "answer"):
        if not isinstance(record.get(field), str):
            raise ValueError(f"{field}: is missing, or no text")
    marked = record["answer"].rpartition(MARK)
    number = last_number(marked[2]) if marked[1] else None
    if number is None:
        raise ValueError(f"answer: does not end in {MARK} and a number")
    return record["question"], number
