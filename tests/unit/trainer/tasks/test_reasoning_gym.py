"""Generators of reasoning-gym."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from trimtab.trainer.tasks.characters import CharacterTokenizer
from trimtab.trainer.tasks.reasoning_gym import ReasoningGym, safe_to_evaluate

TOKENIZER = CharacterTokenizer()
NAMES = ["countdown", "basic_arithmetic", "chain_sum", "spiral_matrix", "simple_integration", "list_functions"]


@pytest.mark.parametrize("name", NAMES)
def test_the_generators_own_answer_is_right_and_another_is_not(name: str) -> None:
    task = ReasoningGym(name, TOKENIZER, response_length=64)
    prompts = task.prompts(4, torch.Generator().manual_seed(1))
    for problem in prompts.problems:
        assert task.score(problem, f"I think so.\n<answer>{problem['answer']}</answer>") == 1.0
        assert task.score(problem, f"Answer: {problem['answer']}") == 1.0
        assert task.score(problem, "<answer>beats me</answer>") == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_prompts_depend_on_the_generator_and_leave_the_global_ones_alone(name: str) -> None:
    random.seed(5)
    np.random.seed(5)
    python, numpy = random.getstate(), np.random.get_state()[1].tolist()
    prompts = [
        ReasoningGym(name, TOKENIZER, response_length=64, seed=3).prompts(6, torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    ]
    assert random.getstate() == python
    assert np.random.get_state()[1].tolist() == numpy
    assert prompts[0].tokens.equal(prompts[1].tokens)
    assert prompts[0].problems == prompts[1].problems != prompts[2].problems


def test_a_prompt_is_the_question_and_how_to_answer() -> None:
    task = ReasoningGym("chain_sum", TOKENIZER, response_length=8, config={"max_terms": 2, "max_digits": 1})
    prompts = task.prompts(1, torch.Generator().manual_seed(1))
    asked = TOKENIZER.decode(prompts.tokens[0].tolist())
    question, _, instruction = asked.partition("\n")
    assert question == prompts.problems[0]["question"]
    assert instruction == task.instruction
    assert prompts.problems[0]["metadata"]["num_terms"] == 2


def test_a_score_is_a_reward_from_its_threshold_on() -> None:
    rewards = {}
    for threshold in (None, 0.04, 0.99):
        task = ReasoningGym("countdown", TOKENIZER, response_length=8, threshold=threshold)
        (_, problem), *_ = task.draw(1, torch.Generator().manual_seed(1))
        rewards[threshold] = [task.score(problem, text) for text in (problem["answer"], "1 + 1", "not a sum", "")]
    assert rewards == {None: [1.0, 0.05, 0.01, 0.01], 0.04: [1.0, 1.0, 0.0, 0.0], 0.99: [1.0, 0.0, 0.0, 0.0]}


def test_responses_are_graded_by_the_verifier() -> None:
    task = ReasoningGym("chain_sum", TOKENIZER, response_length=24)
    prompts = task.prompts(2, torch.Generator().manual_seed(2))
    rows = []
    for text in (prompts.problems[0]["answer"], "who knows"):
        tokens = [*TOKENIZER.encode(text), task.end]
        rows.append(tokens + [task.pad] * (24 - len(tokens)))
    assert task.grade(prompts, torch.tensor(rows)).rewards.tolist() == [1.0, 0.0]


def test_what_reasoning_gym_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="name: 'countdwn' is no generator of reasoning-gym; did you mean countdown"):
        ReasoningGym("countdwn", TOKENIZER, response_length=8)
    with pytest.raises(ValueError, match=r"config: chain_sum refuses .*unexpected keyword argument 'tems'"):
        ReasoningGym("chain_sum", TOKENIZER, response_length=8, config={"tems": 2})
    with pytest.raises(ValueError, match="config: chain_sum refuses its settings: max_terms must be"):
        ReasoningGym("chain_sum", TOKENIZER, response_length=8, config={"min_terms": 9, "max_terms": 2})


@pytest.mark.parametrize(
    "answer",
    [
        "94*4 - 61 - 6",
        "(1 + 2)/3",
        "-2*x**3/3 + sin(x) - exp(2*x) + C",
        "x**(3/2) + 5*x**10*y**2",
        "sqrt(2) * log(3)",
        "[[1, 2], [3, 4]]",
        "['a', 'b']",
        "0xff",
        "_ Q _\nQ _ _",
        "1.5e3",
        "",
    ],
)
def test_sums_and_literals_may_be_evaluated(answer: str) -> None:
    assert safe_to_evaluate(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "9**9**9",
        "9**999",
        "9**(9*99)",
        "((((9**99)**99)**99)**99)",
        "99999!",
        "exp(exp(exp(9)))",
        "exp(9**9)",
        "exp(99999999999)",
        "1 << 99999999999",
        "9e999999999",
        "'a' * 10000000000",
        "[0] * 10000000000",
        "(1,) * 10000000000",
        "10000000000 * [0]",
        "exit()",
        "print (1)",
        "__import__('os')",
        "(lambda: 1)",
        "x.real",
        "[x for x in y]",
        "[exit][0]()",
        "getattr(x, 'y')",
        "1 + 1; 2",
        "1" * 2001,
    ],
)
def test_what_could_run_long_or_do_more_than_compute_may_not(answer: str) -> None:
    assert not safe_to_evaluate(answer)


def test_an_answer_that_is_unsafe_to_evaluate_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    task = ReasoningGym("countdown", TOKENIZER, response_length=8, threshold=None)
    (_, problem), *_ = task.draw(1, torch.Generator().manual_seed(1))
    assert task.evaluates
    assert task.score(problem, "print(1)") == 0.0
    assert task.score(problem, "9**9**9**9") == 0.0
    assert capsys.readouterr().out == ""
    assert not ReasoningGym("chain_sum", TOKENIZER, response_length=8).evaluates
