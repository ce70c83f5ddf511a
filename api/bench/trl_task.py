"""The demo's task for TRL: running sums as text, the reward on that text, and a tiny Qwen3 that has seen them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trimtab.api.bench.tiny import TinyShape, tiny_qwen3
from trimtab.hooks.compiled import cache_dir
from trimtab.trainer.sections import WarmStartConfig
from trimtab.trainer.tasks.running_sum import END, EQUALS, PAD, RunningSum
from trimtab.trainer.warm_start import cached, imitate, weights_of

LETTERS = {**{str(digit): digit for digit in range(10)}, "=": EQUALS, "E": END, "P": PAD, "a": 13, "b": 14, "c": 15}
SHAPE = TinyShape(layers=2, width=64, hidden=256, vocabulary=len(LETTERS))
"""Of the model that is warmed up."""
WARM_START = WarmStartConfig()


def tokenizer() -> Any:
    """One token a letter, with the ids of the task."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = Tokenizer(models.WordLevel(LETTERS, unk_token="c"))
    letters.pre_tokenizer = pre_tokenizers.Split("", behavior="isolated")
    letters.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=letters, eos_token="E", pad_token="P", unk_token="c", padding_side="left"
    )


def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float | None]:
    """1 where the response ends with the total: the task's own rule, on text."""
    totals = (str(sum(map(int, prompt.rstrip("="))) % 10) for prompt in prompts)
    return [float(text[-1:] == total) for text, total in zip(completions, totals, strict=True)]


def questions(task: RunningSum, count: int, seed: int) -> Any:
    """A dataset of `count` prompts."""
    from datasets import Dataset  # type: ignore[import-untyped]

    prompts = task.prompts(count, torch.Generator().manual_seed(seed)).tokens[:, : task.digits].tolist()
    return Dataset.from_list([{"prompt": "".join(map(str, digits)) + "="} for digits in prompts])


def arguments(folder: Path, **settings: Any) -> Any:
    """A GRPOConfig for a CPU that saves, reports and prints nothing, with these settings."""
    from trl.trainer.grpo_config import GRPOConfig

    return GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        logging_steps=10**6,
        report_to=[],
        disable_tqdm=True,
        **settings,
    )


def warm_path(task: RunningSum) -> Path:
    """Where the weights of `warm_model` are cached."""
    return cache_dir() / f"warm-qwen3-{task.digits}-{WARM_START.steps}.pt"


def warm_model(task: RunningSum) -> Any:
    """A Qwen3 that knows the method and is often wrong, as the demo's model: a minute on one core the first time,
    nothing after."""
    model = tiny_qwen3(SHAPE)

    def train() -> dict[str, Tensor]:
        imitate(model, lambda tokens, last: model(input_ids=tokens).logits[:, -last:], task, WARM_START)
        return weights_of(model)

    model.load_state_dict(cached(warm_path(task), train))
    return model
