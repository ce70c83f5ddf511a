"""A trainer of transformers that stands still between two of its generations, so that two can be timed in turns."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any


def turns(trainer: Any, count: int, updates: int) -> Iterator[float]:
    """Seconds of each of `count` generations with the `updates` optimizer steps on it; trains in a thread."""
    from transformers import TrainerCallback

    taken: queue.Queue[float] = queue.Queue()
    go = threading.Semaphore(0)

    class TakeTurns(TrainerCallback):
        """Stops the trainer after every batch of responses."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            if state.global_step % updates == 0:
                go.acquire()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            if state.global_step % updates == 0:
                taken.put(time.perf_counter())

    trainer.add_callback(TakeTurns())  # behind whatever else is called at the end of a step
    thread = threading.Thread(target=trainer.train, daemon=True)
    thread.start()
    for _ in range(count):
        started = time.perf_counter()
        go.release()
        yield taken.get() - started
    thread.join()
