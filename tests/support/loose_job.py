"""A GRPOTrainer whose clip is too loose, in a process of its own to which nothing is attached at its start."""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from trimtab.api.bench.rescue import NO_CLIP, trainer

GENERATIONS = 1000


class Watch(TrainerCallback):
    """Notes the clip of every step, and ends training once a file is there."""

    def __init__(self, stop: Path) -> None:
        self.stop = stop
        self.clips: list[float] = []
        self.trainer: Any = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        self.clips.append(self.trainer.epsilon_low)
        if len(self.clips) == 1:
            print("training", flush=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        control.should_training_stop = self.stop.exists()


def main(out: Path, stop: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    watch = Watch(stop)
    with tempfile.TemporaryDirectory() as folder:
        watch.trainer = trainer(Path(folder), clip=NO_CLIP, seed=0, generations=GENERATIONS)
        watch.trainer.add_callback(watch)
        watch.trainer.train()
    out.write_text(json.dumps({"clips": watch.clips, "steps": watch.trainer.state.global_step}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
