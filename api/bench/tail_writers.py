"""Jobs that log with the real libraries, for `trimtab bench tail`: a program of its own.

    python -m trimtab.api.bench.tail_writers KIND FOLDER STEPS PAUSE_S FLUSH_S

It prints `begun`, and then logs `len(KEYS)` numbers a step.
"""

from __future__ import annotations

import importlib
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

KEYS = (
    "loss",
    "grad_norm",
    "reward",
    "reward_std",
    "entropy",
    "learning_rate",
    "frac_reward_zero_std",
    "completions/mean_length",
    "completions/clipped_ratio",
    "clip_ratio/region_mean",
    "sampling/sampling_logp_difference/mean",
    "sampling/importance_sampling_ratio/max",
)


def steps_of(steps: int, pause_s: float) -> Iterator[tuple[int, dict[str, float]]]:
    """Steps and their numbers, a pause behind each."""
    print("begun", flush=True)
    for step in range(steps):
        yield step, {f"train/{key}": random.random() for key in KEYS}
        time.sleep(pause_s)


def wandb(folder: Path, steps: int, pause_s: float, flush_s: float) -> None:  # noqa: ARG001 - it flushes as it likes
    """An offline run."""
    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
    library: Any = importlib.import_module("wandb")
    run = library.init(project="bench", dir=str(folder), settings=library.Settings(x_disable_stats=True))
    for step, values in steps_of(steps, pause_s):
        run.log({**values, "train/global_step": step})
    run.finish()


def tensorboard(folder: Path, steps: int, pause_s: float, flush_s: float) -> None:
    """torch's SummaryWriter, an event a number."""
    library: Any = importlib.import_module("torch.utils.tensorboard")
    writer = library.SummaryWriter(str(folder), flush_secs=int(flush_s))
    for step, values in steps_of(steps, pause_s):
        for key, value in values.items():
            writer.add_scalar(key, value, step)
    writer.close()


WRITERS: dict[str, Callable[[Path, int, float, float], None]] = {"wandb": wandb, "tensorboard": tensorboard}

if __name__ == "__main__":
    kind, where, count, pause, flush = sys.argv[1:]
    WRITERS[kind](Path(where), int(count), float(pause), float(flush))
