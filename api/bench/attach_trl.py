"""The job of TRL's for `trimtab bench attach --trl`: a real GRPOTrainer on a tiny Qwen3, in a process of its own, that
knows nothing of trimtab until somebody attaches to it. Every step samples, and updates once."""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset  # type: ignore[import-untyped]
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

LETTERS = {letter: number for number, letter in enumerate("0123456789=EP?")}
MOST_STEPS = 100_000
RAN = Path("/proc/thread-self/schedstat")


class Times(TrainerCallback):
    """Notes when each step began, and ends training once a file is there or enough steps are done."""

    def __init__(self, stop: Path, steps: int) -> None:
        self.stop, self.steps = stop, steps
        self.began: list[list[float]] = []
        """When each step began, in seconds since boot; for how long the thread had run, and had waited to run, ns."""

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Note the time, and say that training has begun."""
        self.began.append([time.monotonic(), *map(int, RAN.read_text().split()[:2])])
        if len(self.began) == 1:
            print("training", flush=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - the protocol's
        """End training where that is asked for."""
        control.should_training_stop = self.stop.exists() or state.global_step >= self.steps


def trainer(folder: str, times: Times) -> GRPOTrainer:
    """A trainer that is the same every time."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    letters = Tokenizer(models.WordLevel(LETTERS, unk_token="?"))
    letters.pre_tokenizer = pre_tokenizers.Split("", behavior="isolated")
    letters.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=letters, eos_token="E", pad_token="P", unk_token="?", padding_side="left"
    )
    model = Qwen3ForCausalLM(  # type: ignore[no-untyped-call]
        Qwen3Config(
            vocab_size=len(LETTERS),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=LETTERS["E"],
            pad_token_id=LETTERS["P"],
        )
    )
    config = GRPOConfig(
        output_dir=folder,
        max_steps=MOST_STEPS,
        use_cpu=True,
        bf16=False,
        seed=0,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=8,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        logging_steps=10**6,
        save_strategy="no",
        gradient_checkpointing=False,
        report_to=[],
        disable_tqdm=True,
    )
    prompts = Dataset.from_list([{"prompt": f"{number:03d}="} for number in range(64)])
    return GRPOTrainer(
        model, reward_funcs=_nines, args=config, train_dataset=prompts, processing_class=tokenizer, callbacks=[times]
    )


def _nines(completions: list[str], **_: Any) -> list[float | None]:
    return [text.count("9") / 8 for text in completions]


def main(out: Path, stop: Path, steps: int) -> None:
    """Train, and write down when each step began and what it came to."""
    times = Times(stop, steps)
    with tempfile.TemporaryDirectory() as folder:
        ours = trainer(folder, times)
        before = sorted(vars(ours))
        ours.train()
    assert ours.model is not None
    weights = b"".join(value.detach().numpy().tobytes() for _, value in sorted(ours.model.named_parameters()))
    told = {"began": times.began, "steps": ours.state.global_step, "digest": hashlib.sha256(weights).hexdigest()}
    out.write_text(json.dumps(told | {"new": sorted(set(vars(ours)) - set(before))}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else MOST_STEPS)
