"""Jobs that log with the real libraries, each a process of its own that prints a line once it has begun.

    python log_writers.py KIND FOLDER STEPS PAUSE_S

What step `i` logs is `logged(i)`: the same in the process and in the test.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

KEYS = (
    "loss",
    "grad_norm",
    "reward",
    "entropy",
    "completions/mean_length",
    "completions/clipped_ratio",
    "frac_reward_zero_std",
    "sampling/importance_sampling_ratio/max",
    "clip_ratio/region_mean",
)


def logged(step: int) -> dict[str, float]:
    """The numbers of a step, exact in float32."""
    return {key: (step * (i + 3) % 64) / 64 for i, key in enumerate(KEYS)}


def wandb(folder: Path, steps: int, pause: float) -> None:
    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
    import wandb as library

    run = library.init(project="tail", dir=str(folder), settings=library.Settings(x_disable_stats=True))
    print("begun", flush=True)
    for step in range(steps):
        run.log({**{f"train/{key}": value for key, value in logged(step).items()}, "train/global_step": step})
        time.sleep(pause)
    run.finish()


def tensorboard(folder: Path, steps: int, pause: float) -> None:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder), flush_secs=1)
    print("begun", flush=True)
    for step in range(steps):
        for key, value in logged(step).items():
            writer.add_scalar(f"train/{key}", value, step)
        time.sleep(pause)
    writer.close()


def mlflow_files(folder: Path, steps: int, pause: float) -> None:
    _mlflow(folder.as_uri(), steps, pause)


def mlflow(folder: Path, steps: int, pause: float) -> None:
    _mlflow(f"sqlite:///{folder / 'mlflow.db'}", steps, pause)


def _mlflow(uri: str, steps: int, pause: float) -> None:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow as library

    library.set_tracking_uri(uri)
    library.set_experiment("tail")
    with library.start_run():
        print("begun", flush=True)
        for step in range(steps):
            library.log_metrics(logged(step), step=step)
            time.sleep(pause)


def trackio(folder: Path, steps: int, pause: float) -> None:
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio as library

    library.init(project="tail", embed=False)
    print("begun", flush=True)
    for step in range(steps):
        library.log(logged(step), step=step)
        time.sleep(pause)
    library.finish()


WRITERS: dict[str, Callable[[Path, int, float], None]] = {
    each.__name__: each for each in (wandb, tensorboard, mlflow, mlflow_files, trackio)
}


@contextmanager
def writing(kind: str, folder: Path, steps: int, pause: float = 0.0) -> Iterator[subprocess.Popen[str]]:
    """Such a job, which has begun; it is killed when the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, kind, str(folder), str(steps), str(pause)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    with (
        (folder / "writer.err").open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as process,
    ):
        try:
            assert process.stdout is not None
            if not any(line.strip() == "begun" for line in iter(process.stdout.readline, "")):
                raise AssertionError((folder / "writer.err").read_text())
            yield process
        finally:
            process.kill()


if __name__ == "__main__":
    WRITERS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
