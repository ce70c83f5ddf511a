"""Real trainers of TRL on a tiny random Qwen3, with transformers' generation or with a sampler of our own."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from trimtab.api.bench.tiny import TinyShape, tiny_qwen3
from trimtab.api.bench.trl_task import LETTERS, questions, reward, tokenizer
from trimtab.hooks.attachment import Attachment
from trimtab.hooks.records import Command, StepSummary
from trimtab.hooks.transport.memory import MemoryTransport
from trimtab.trainer.tasks.running_sum import END, RunningSum

TASK = RunningSum(digits=4)
NOISE = 0.3
"""Standard deviation of what the sampler's logits are off the model's."""


class Sampler:
    """A rollout function: samples from the model's logits with noise on them, as a sampler of low precision has, and
    returns its own log-probs, of all tokens too where they are asked for."""

    def __init__(self, *, head: bool = False) -> None:
        self.head = head
        self.noise = torch.Generator().manual_seed(1)

    @torch.no_grad()
    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        encoded = [[LETTERS[letter] for letter in prompt] for prompt in prompts]
        tokens = torch.tensor(encoded)
        chosen, heads = [], []
        for _ in range(trainer.max_completion_length):
            logits = trainer.model(input_ids=tokens).logits[:, -1].float() / trainer.temperature
            logits = logits + NOISE * torch.randn(logits.shape, generator=self.noise)
            logprobs = torch.log_softmax(logits, -1)
            token = torch.multinomial(logprobs.exp(), 1)
            tokens = torch.cat([tokens, token], 1)
            chosen.append(logprobs.gather(1, token).squeeze(1))
            heads.append(logprobs)
        completions = tokens[:, len(encoded[0]) :].tolist()
        lengths = [row.index(END) + 1 if END in row else len(row) for row in completions]
        picked, full = torch.stack(chosen, 1).tolist(), torch.stack(heads, 1)
        found: dict[str, Any] = {
            "prompt_ids": encoded,
            "completion_ids": [row[:n] for row, n in zip(completions, lengths, strict=True)],
            "logprobs": [row[:n] for row, n in zip(picked, lengths, strict=True)],
        }
        if self.head:
            ids = list(range(full.shape[-1]))
            found["sampler_head_ids"] = [[ids] * n for n in lengths]
            found["sampler_head_logprobs"] = [full[b, :n].tolist() for b, n in enumerate(lengths)]
        return found


def grpo(folder: Path, *, steps: int = 4, sampler: Sampler | None = None, **settings: Any) -> GRPOTrainer:
    """A GRPOTrainer of 16 responses a generation, in two minibatches, two passes over each."""
    torch.manual_seed(0)
    arguments: dict[str, Any] = {
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "steps_per_generation": 2,
        "num_iterations": 2,
        "gradient_accumulation_steps": 1,
        "max_completion_length": TASK.response_length,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "logging_steps": 10**6,
        "seed": 0,
    }
    config = GRPOConfig(
        output_dir=str(folder),
        max_steps=steps,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **(arguments | settings),
    )
    model = tiny_qwen3(TinyShape(layers=1, width=32, hidden=64, vocabulary=len(LETTERS)))
    if settings.get("beta"):  # TRL loads the reference weights from where the model came from
        model.save_pretrained(folder / "reference")
        model.config._name_or_path = str(folder / "reference")
    return GRPOTrainer(
        model,
        reward_funcs=_any_digit,
        args=config,
        train_dataset=questions(TASK, 64, 0),
        processing_class=tokenizer(),
        rollout_func=sampler,
    )


def _any_digit(prompts: list[str], completions: list[str], **rest: Any) -> list[float | None]:
    """What a random model can earn: the share of digits, and the task's own reward."""
    earned = reward(prompts, completions, **rest)
    return [
        (each or 0.0) + sum(letter.isdigit() for letter in text) / max(1, len(text))
        for each, text in zip(earned, completions, strict=True)
    ]


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    return {name: copy.deepcopy(value.detach()) for name, value in trainer.model.named_parameters()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """To the bit."""
    return all(torch.equal(value, other[name]) for name, value in one.items())


def sent(attachment: Attachment) -> list[StepSummary]:
    transport = attachment.emitter.transport
    assert isinstance(transport, MemoryTransport)
    return transport.sent


def wish(attachment: Attachment, generation: int, **overrides: Any) -> None:
    """Command as an agent does, for the step after the next that ends."""
    transport = attachment.emitter.transport
    assert isinstance(transport, MemoryTransport)
    transport.set_command(
        Command(
            job=attachment.emitter.job,
            attempt=attachment.emitter.attempt,
            generation=generation,
            overrides=overrides,
            reason="test",
            issuer="person",
        )
    )
