"""The loop of `trimtab bench attach`, which runs in a process of its own: a small network, many short operations, each
of which lets go of the interpreter's lock and has to get it back; beside it a thread that waits, as a progress bar has.
A program that knows nothing of trimtab until somebody attaches to it."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

RAN = Path("/proc/thread-self/schedstat")


class Loop:
    """Trains on drawn batches until it is told to stop."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        layers = [layer for _ in range(8) for layer in (torch.nn.Linear(256, 256), torch.nn.GELU())]
        self.model = torch.nn.Sequential(*layers)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.began: list[list[float]] = []
        """When each step began, in seconds since boot; for how long the thread had run, and had waited to run, ns."""

    def run(self, stop: Path) -> None:
        """Train until `stop` is there."""
        while not stop.exists():
            self.began.append([time.monotonic(), *map(int, RAN.read_text().split()[:2])])
            self.step()

    def step(self) -> float:
        """One update."""
        inputs = torch.randn(256, 256)
        loss = (self.model(inputs) - inputs).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


class Attachment:
    """What `attach` gives."""

    def __init__(self, loop: Loop, emitter: Any) -> None:
        self.loop, self.emitter, self.steps, self.plain = loop, emitter, 0, loop.step
        loop.step = self.step  # type: ignore[method-assign]

    def step(self) -> float:
        """A step that is reported."""
        loss = self.plain()
        self.emitter.end_step(step=self.steps, scalars={"loss": loss})
        self.steps += 1
        return loss

    def detach(self) -> None:
        """Put everything back."""
        del self.loop.step
        self.emitter.close()


def attach(loop: Loop, url: str, *, job: str, token: str | None = None) -> Attachment:
    """Report every step of `loop` to `url`."""
    from trimtab.hooks.attach import attach as joined

    return Attachment(loop, joined(url, job=job, token=token))


if __name__ == "__main__":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    ours = Loop()
    print("training", flush=True)
    ours.run(Path(sys.argv[2]))
    Path(sys.argv[1]).write_text(json.dumps({"began": ours.began}))
