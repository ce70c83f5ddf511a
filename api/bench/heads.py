"""What recording the most probable tokens costs vLLM: the same responses with heads of several sizes, in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import torch

from trimtab.api.bench.spread import Spread
from trimtab.trainer.build import build
from trimtab.trainer.config import RunConfig, validated
from trimtab.trainer.rollouts.build import build_sampler
from trimtab.trainer.rollouts.sampler import Sampler, Update
from trimtab.trainer.tasks.task import Prompts

HEADS = (0, 8, 128)
"""0 records the sampled token's own log-prob alone, which training needs anyway."""
PROMPTS, PROMPT_LENGTH, SAMPLES, LENGTH = 8, 24, 4, 48
SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadCost:
    """Throughput with heads of one size."""

    head: int
    tokens_per_second: float
    """Median, of processor time: one thread does all the work, and other processes on the machine do not count."""
    loss: float
    """Median over rounds of the share of throughput that is lost against no head in the same round."""
    loss_p10: float
    loss_p90: float


def bench_heads(rounds: int, on_round: Callable[[], None] = lambda: None) -> list[HeadCost]:
    """SmolLM2-135M in BF16, 32 responses of up to 48 tokens at a time, on one thread; `on_round` is called after each.

    A round's responses are the same for every size, and the sizes take turns in going first.

    Raises:
        ConfigError: vLLM or SmolLM2 is not installed; the message says how to install it.
    """
    torch.set_num_threads(1)
    config = _config()
    model, task = build(config)
    vocabulary = int(getattr(model, "vocabulary"))  # noqa: B009 - of the Hugging Face adapter
    with closing(build_sampler(config, model, end=task.end, pad=task.pad)) as sampler:
        sampler.sync(Update(weights=model.state_dict(), version=0, number_format="bf16"))
        speeds: dict[int, list[float]] = {head: [] for head in HEADS}
        for head in HEADS:
            _tokens_per_second(sampler, vocabulary, task.pad, head, SEED)
        for number in range(rounds):
            for head in _rotated(number):
                speeds[head].append(_tokens_per_second(sampler, vocabulary, task.pad, head, number))
            on_round()
    return [_cost(head, taken, speeds[0]) for head, taken in speeds.items()]


def _config() -> RunConfig:
    return validated(
        {
            "model": {"kind": "smollm2"},
            "task": {"kind": "reasoning_gym", "dataset": "spell_backward", "response_length": LENGTH},
            "sampler": {"kind": "vllm", "max_model_len": 256, "max_num_seqs": PROMPTS * SAMPLES, "kv_cache_gib": 0.5},
        }
    )


def _rotated(number: int) -> Iterator[int]:
    first = number % len(HEADS)
    yield from (*HEADS[first:], *HEADS[:first])


def _tokens_per_second(sampler: Sampler, vocabulary: int, pad: int, head: int, seed: int) -> float:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(vocabulary, (PROMPTS, PROMPT_LENGTH), generator=generator).tolist()
    prompts = Prompts.left_padded(rows, [None] * PROMPTS, pad)
    started = time.process_time()
    rollout = sampler.generate(prompts, LENGTH, samples=SAMPLES, head=head, temperature=1.0, generator=generator)
    return int((rollout.logprobs != 0).sum()) / (time.process_time() - started)


def _cost(head: int, speeds: list[float], reference: list[float]) -> HeadCost:
    loss = Spread.of(1 - mine / theirs for mine, theirs in zip(speeds, reference, strict=True))
    return HeadCost(
        head=head,
        tokens_per_second=statistics.median(speeds),
        loss=loss.median,
        loss_p10=loss.p10,
        loss_p90=loss.p90,
    )
