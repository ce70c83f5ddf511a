"""The demo's task for TRL: running sums as text, the reward on that text, and a tiny Qwen3 that has seen them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from trimtab.api.bench.tiny import TinyShape, tiny_qwen3
from trimtab.hooks.compiled import cache_dir
from trimtab.trainer.tasks.running_sum import END, EQUALS, PAD, RunningSum

LETTERS = {**{str(digit): digit for digit in range(10)}, "=": EQUALS, "E": END, "P": PAD, "a": 13, "b": 14, "c": 15}
SHAPE = TinyShape(layers=2, width=64, hidden=256, vocabulary=len(LETTERS))
"""Of the model that is warmed up."""
WARM_STEPS, WARM_BATCH, WARM_LR, ERROR_RATE = 1200, 128, 3e-3, 0.08


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
    return cache_dir() / f"warm-qwen3-{task.digits}-{WARM_STEPS}.pt"


def warm_model(task: RunningSum) -> Any:
    """A Qwen3 that knows the method and is often wrong, as the demo's model: a minute on one core the first time,
    nothing after."""
    model, path = tiny_qwen3(SHAPE), warm_path(task)
    if not path.exists():
        _imitate(model, task)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), path.with_suffix(".partial"))
        path.with_suffix(".partial").replace(path)  # atomic: a run beside this one never reads half a file
    model.load_state_dict(torch.load(path, weights_only=True))
    return model


def _imitate(model: Any, task: RunningSum) -> None:
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=WARM_LR, weight_decay=0.01)
    for step in range(WARM_STEPS):
        cosine = 0.5 * (1 + math.cos(math.pi * step / WARM_STEPS))
        for group in optimizer.param_groups:
            group["lr"] = WARM_LR * min(1.0, (step + 1) / 50) * (0.1 + 0.9 * cosine)
        prompts = task.prompts(WARM_BATCH, generator).tokens
        answers = task.corrupted_answers(prompts, ERROR_RATE, generator)
        tokens = torch.cat([prompts, answers], 1)
        logits = model(input_ids=tokens[:, :-1]).logits[:, prompts.shape[1] - 1 :]
        loss = F.cross_entropy(logits.flatten(0, 1), answers.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
