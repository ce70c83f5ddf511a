"""What the tests of the emitter share: a trainer that can change something, its tensors, and an agent's commands."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.hooks.controls import Capabilities, Liveness
from trimtab.hooks.records import Command

CAN = Capabilities(controls=dict.fromkeys(("clip_low", "centering", "ratio_reference"), Liveness.LIVE), sampler_head=4)


def command(generation: int, **overrides: Any) -> Command:
    return Command(job="run", attempt=1, generation=generation, overrides=overrides, reason="", issuer="agent")


def tensors(tokens: int = 4) -> dict[str, Any]:
    """Two sequences of opposite advantage, log-ratios of 1/8 (update) and 3/8 (mismatch)."""
    logprobs = np.full((2, tokens), -1.0, dtype=np.float32)
    return {
        "train_logprobs": logprobs,
        "old_logprobs": logprobs - np.float32(0.125),
        "rollout_logprobs": logprobs - np.float32(0.5),
        "advantages": np.float32([1.0, -1.0]),
        "loss_mask": np.ones((2, tokens)),
        "entropy": np.full((2, tokens), 0.5, dtype=np.float32),
    }
