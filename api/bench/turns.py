"""A trainer of transformers that stands still between two of its generations, so that two can be timed in turns."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any


def turns(trainer: Any, count: int, updates: int) -> Iterator[tuple[float, float]]:
    """Of each of `count` generations with the `updates` optimizer steps on it: seconds by the clock, and of a processor
    in the thread that trains, which what others do beside it hardly changes."""
    from transformers import TrainerCallback

    taken: queue.Queue[tuple[float, float]] = queue.Queue()
    go = threading.Semaphore(0)

    class TakeTurns(TrainerCallback):
        """Stops the trainer before every batch of responses, and tells then what the one before took: until it stands
        still it draws random numbers."""

        began = 0.0
        told: tuple[float, float] | None = None

        def tell(self) -> None:
            if self.told is not None:
                taken.put(self.told)
                self.told = None

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            if state.global_step % updates == 0:
                self.tell()
                go.acquire()
                self.began = time.thread_time()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            if state.global_step % updates == 0:
                self.told = (time.perf_counter(), time.thread_time() - self.began)

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.tell()

    trainer.add_callback(TakeTurns())  # behind whatever else is called at the end of a step
    thread = threading.Thread(target=trainer.train, daemon=True)
    thread.start()
    for _ in range(count):
        started = time.perf_counter()
        go.release()
        ended, worked = taken.get()
        yield ended - started, worked
    thread.join()
