"""A training loop of a framework of its own, with what attaches to it. As a program it trains until the file that is
its first argument is there, and tells what it came to; `Loop(...).trained(steps)` is the same without anybody attached.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

STEP_SECONDS = 0.01
"""Long enough for an agent on the same core to keep up."""


class Loop:
    """Least squares by gradient descent on drawn batches: every step depends on all before it."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(7)
        self.weights = np.zeros(16)
        self.lr_scale = 1.0
        self.steps = 0

    def run(self, done: Path) -> None:
        """Train until `done` is there."""
        while not done.exists():
            self.step()
            time.sleep(STEP_SECONDS)

    def trained(self, steps: int) -> Loop:
        """This loop, `steps` steps later."""
        for _ in range(steps):
            self.step()
        return self

    def step(self) -> None:
        """Take one step."""
        inputs = self.rng.normal(size=(8, 16))
        errors = inputs @ self.weights - inputs.sum(1)
        self.weights -= 0.01 * self.lr_scale * (inputs.T @ errors) / 8
        self.steps += 1

    def digest(self) -> str:
        """Of all bits that training has come to."""
        return hashlib.sha256(self.weights.tobytes()).hexdigest()


class Attachment:
    """What `attach` gives. It is let go in another thread, so a step that runs then is the last one reported."""

    def __init__(self, loop: Any, emitter: Any) -> None:
        self.loop, self.emitter, self.plain = loop, emitter, loop.step
        self.gone = False
        self.in_step = threading.Lock()
        loop.step = self.step

    def step(self) -> None:
        """A step that is reported, and whose controls the next one uses."""
        with self.in_step:
            self.plain()
            if not self.gone:
                self.loop.lr_scale = self.emitter.end_step(step=self.loop.steps - 1, scalars={"loss": 0.0}).lr_scale

    def detach(self) -> None:
        """Put everything back."""
        with self.in_step:
            self.gone = True
            del self.loop.step
            self.loop.lr_scale = 1.0
        self.emitter.close()


def attach(loop: Any, url: str, *, job: str, token: str | None = None) -> Attachment:
    """Report every step of `loop` to `url`."""
    import trimtab
    from trimtab.hooks.controls import Capabilities, Liveness

    can = Capabilities(controls={"lr_scale": Liveness.LIVE})
    return Attachment(loop, trimtab.attach(url, job=job, token=token, capabilities=can, attempt=1, spool=None))


def broken(loop: Any, url: str, *, job: str, token: str | None = None) -> Attachment:  # noqa: ARG001 - as above
    """An adapter that does not fit."""
    raise LookupError(f"this {type(loop).__name__} has no loss")


def told(loop: Loop) -> str:
    """What a test compares."""
    files = [os.path.realpath(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")]
    return json.dumps(
        {
            "steps": loop.steps,
            "digest": loop.digest(),
            "own": sorted(vars(loop)),
            "threads": sorted(each.name for each in threading.enumerate()),
            "files": sorted(each for each in files if "trimtab" in each),
            "globals": sorted(name for name in vars(sys.modules["__main__"]) if "trimtab" in name),
        }
    )


if __name__ == "__main__":
    ours = Loop()
    print("training", flush=True)
    ours.run(Path(sys.argv[1]))
    print(told(ours), flush=True)
