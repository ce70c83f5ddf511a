"""Any generator of reasoning-gym (Stojanovski et al. 2025, arXiv:2505.24760) as a task.

Two things are guarded against. A few generators draw from the global random state, so that one index is not one
problem: it is pinned to the index here, and put back. And some verifiers hand the answer to `eval` or to sympy's
`parse_expr`, which is `eval`: an answer of `9**9**9` would take forever, and one that calls a function would be run. To
such a verifier only answers are shown that are arithmetic or literals.
"""

from __future__ import annotations

import difflib
import inspect
import random
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from trimtab.trainer.tasks.answers import extract_answer
from trimtab.trainer.tasks.garbage import GarbageLimits
from trimtab.trainer.tasks.text import TextTask, Tokenizer

try:
    from reasoning_gym.factory import DATASETS, create_dataset  # type: ignore[import-untyped]
except ImportError as error:  # pragma: no cover
    raise ImportError("this task needs reasoning-gym: pip install reasoning-gym") from error

INSTRUCTION = "Think step by step, and end with the final answer, and nothing else, inside <answer> and </answer>."
LONGEST_EXPRESSION = 2000
DRAWS = 20
"""Times that missing problems are drawn anew before the settings are called impossible."""
_FORBIDDEN = (
    re.compile(r"(?<!\w)(?!(?:sin|cos|tan|asin|acos|atan|exp|log|ln|sqrt|Abs)\s*\()[^\W\d]\w*\s*\("),
    re.compile(r"[)\]}'\"]\s*\("),  # calls of what an expression gives
    re.compile(r"__|\.\s*[^\W\d]|[;@!\\:]|\blambda\b|\bimport\b|\bfor\b"),
    re.compile(r"['\"\[{,].*\*|\*.*['\"\[{,]", re.DOTALL),  # a sequence times a number
    re.compile(r"<<|\d[eE][+-]?\d{3}"),
    re.compile(r"exp\s*\((?!\s*-?\s*(?:\d{1,3}\s*\*\s*)?[a-z]\s*(?:[*/+-]\s*\d{1,3}\s*)?\))"),
)
_SMALL_POWER = re.compile(r"\*\*\s*(?:[+-]?\d{1,2}|\(\s*[+-]?\d{1,2}\s*(?:/\s*\d{1,2}\s*)?\)|[a-z])(?![\w.]|\s*\*\*)")
_POWER_OF_A_BRACKET = re.compile(r"\)\s*\*\*")


class ReasoningGym(TextTask):
    """Problems of one generator; the reward is its own verifier's score.

    Args:
        name: of the generator, such as `countdown`.
        tokenizer: of the model.
        response_length: most tokens that a response may have.
        size: different problems that there are.
        seed: of all of them.
        threshold: the score from which on the reward is 1, and 0 below; None for the score itself. Scores are in
            [0, 1], and some generators give a little for any answer.
        instruction: how to answer. What is verified is `extract_answer` of the response.
        limits: from where on a response is garbage.
        config: the generator's own settings.

    Raises:
        ValueError: an unknown generator, or settings that it refuses.
    """

    def __init__(
        self,
        name: str,
        tokenizer: Tokenizer,
        *,
        response_length: int,
        size: int = 100_000,
        seed: int = 0,
        threshold: float | None = 0.99,
        instruction: str = INSTRUCTION,
        limits: GarbageLimits | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(tokenizer, response_length=response_length, instruction=instruction, limits=limits)
        if name not in DATASETS:
            close = difflib.get_close_matches(name, DATASETS) or sorted(DATASETS)
            raise ValueError(f"name: {name!r} is no generator of reasoning-gym; did you mean {', '.join(close)}?")
        try:
            self.dataset = create_dataset(name, size=size, seed=seed, **(config or {}))
        except (AssertionError, TypeError, ValueError) as error:
            raise ValueError(f"config: {name} refuses its settings: {error}") from error
        self.name = name
        self.seed = seed
        self.draw(8, torch.Generator().manual_seed(seed))  # impossible settings are told here, and not in a step
        self.threshold = threshold
        module = inspect.getsource(sys.modules[type(self.dataset).__module__])
        self.evaluates = re.search(r"\b(?:parse_expr|eval)\(", module) is not None
        """Whether its verifier may run an answer."""

    def draw(self, count: int, generator: torch.Generator) -> list[tuple[str, dict[str, Any]]]:
        """Problems drawn with replacement; each is a function of its index, the seed and the settings.

        Under narrow settings some generators find no problem for some indices; others are drawn instead.

        Raises:
            ValueError: they find hardly any.
        """
        problems: list[tuple[str, dict[str, Any]]] = []
        for _ in range(DRAWS):
            for index in torch.randint(len(self.dataset), (count - len(problems),), generator=generator).tolist():
                problem = self._problem(index)
                if problem is not None:
                    problems.append((problem["question"], problem))
            if len(problems) == count:
                return problems
        raise ValueError(f"config: {self.name} finds hardly any problem under its settings; widen them")

    def _problem(self, index: int) -> dict[str, Any] | None:
        """The problem of an index; None if its generator gives up on it."""
        with _global_randomness(self.seed + index):
            try:
                problem: dict[str, Any] = self.dataset[index]
            except (ValueError, IndexError, AssertionError):
                return None
        return problem

    def score(self, problem: dict[str, Any], text: str) -> float:
        """The verifier's score of the answer in `text`, or whether it reaches the threshold."""
        answer = extract_answer(text)
        score = 0.0
        if not self.evaluates or safe_to_evaluate(answer):
            with _global_randomness(self.seed):
                try:
                    score = float(self.dataset.score_answer(answer, problem))
                except (
                    Exception
                ):  # verifiers raise, each its own way, on answers that nobody thought of: these are wrong
                    score = 0.0
        return score if self.threshold is None else float(score >= self.threshold)


def safe_to_evaluate(answer: str) -> bool:
    """Whether evaluating `answer` as Python ends soon and does no more than compute.

    No calls but of elementary functions, no attributes, statements, factorials, shifts or repeated sequences; powers
    and exponentials only of what is small.

    >>> [safe_to_evaluate(answer) for answer in ("94*4 - 61", "x**3/3 + sin(x)", "9**9**9", "exit()")]
    [True, True, False, False]
    """
    if len(answer) > LONGEST_EXPRESSION or any(rule.search(answer) for rule in _FORBIDDEN):
        return False
    small = len(_SMALL_POWER.findall(answer)) == answer.count("**")
    return small and len(_POWER_OF_A_BRACKET.findall(answer)) <= 2


@contextmanager
def _global_randomness(seed: int) -> Iterator[None]:
    """The global random states at `seed`, and afterwards where they were."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
