"""Controls as tensors that a compiled loss or a captured graph reads: 0-dimensional, and changed in place.

A Python number that a compiled function reads is part of what was compiled: a new value compiles it anew, and a CUDA
graph goes on with the old one. A tensor is an input. It is filled by a kernel that takes the number along, so nothing
waits for the device.
"""

from __future__ import annotations

import math

import torch

from trimtab.hooks.controls import Controls


class LiveTensors:
    """The numbers of `Controls` that a loss and an optimizer read, on one device.

    >>> live = LiveTensors(Controls(clip_high=0.28))
    >>> round(live.ratio_high.item(), 2)
    1.28
    >>> kept = live.ratio_high
    >>> live.update(Controls(clip_high=0.1))
    >>> round(kept.item(), 2)
    1.1
    """

    def __init__(self, controls: Controls, *, device: torch.device | str = "cpu") -> None:
        """Float32 tensors of no dimensions on `device`, which stay the same objects at the same addresses."""
        self._values = _values(controls)
        made = {name: torch.tensor(value, dtype=torch.float32, device=device) for name, value in self._values.items()}
        self.ratio_low: torch.Tensor = made["ratio_low"]
        """Lower clip bound of the ratio, 1 - clip_low."""
        self.ratio_high: torch.Tensor = made["ratio_high"]
        """Upper clip bound of the ratio, 1 + clip_high."""
        self.importance_low: torch.Tensor = made["importance_low"]
        """Lower bound of the importance band; 0 where importance is `none`."""
        self.importance_high: torch.Tensor = made["importance_high"]
        """Upper bound of the importance band; infinite where importance is `none`."""
        self.importance_on: torch.Tensor = made["importance_on"]
        """1 where tokens are weighted by importance, else 0: the weight is then to be 1, whatever the band."""
        self.kl_coef: torch.Tensor = made["kl_coef"]
        """Weight of the KL penalty."""
        self.lr_scale: torch.Tensor = made["lr_scale"]
        """Factor on the run's own learning rate."""
        self._tensors = made

    @torch.no_grad()
    def update(self, controls: Controls) -> None:
        """Give the tensors the values of `controls`, in place; between steps, since a backward pass may read them."""
        values = _values(controls)
        for name, value in values.items():
            if value != self._values[name]:
                self._tensors[name].fill_(value)
        self._values = values


def _values(controls: Controls) -> dict[str, float]:
    weighted = controls.importance != "none"
    return {
        "ratio_low": 1.0 - controls.clip_low,
        "ratio_high": 1.0 + controls.clip_high,
        "importance_low": controls.importance_low if weighted else 0.0,
        "importance_high": controls.importance_high if weighted else math.inf,
        "importance_on": float(weighted),
        "kl_coef": controls.kl_coef,
        "lr_scale": controls.lr_scale,
    }
