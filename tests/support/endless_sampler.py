"""A sampler that never ends a batch by itself."""

from __future__ import annotations

import time
from typing import Any

from trimtab.hooks.contract import TensorContract
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import Arrivals, Update
from trimtab.trainer.tasks.task import Prompts


class EndlessSampler:
    """Asks for arrivals for ever."""

    version = -1

    def sync(self, update: Update) -> None:
        """There is nothing to take over."""

    def generate(self, _prompts: Prompts, _length: int, *, arrivals: Arrivals | None = None, **_how: Any) -> Rollout:
        """Ask."""
        assert arrivals is not None
        while True:
            arrivals()
            time.sleep(0.001)

    def contract(self) -> dict[str, TensorContract]:
        """Of no weight."""
        return {}

    def close(self) -> None:
        """There is nothing to end."""
