"""Sum up the tensors of a step, micro-batch by micro-batch, without keeping them.

`measure` is the reference, in numpy; torch tensors go to `trimtab.hooks.accumulate_torch`, which gives the same vector
without ever waiting for the device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.controls import RatioReference
from trimtab.hooks.layout import SIZE, SKETCHES, TENSORS, log_ratios, parts
from trimtab.hooks.records import TokenBatch
from trimtab.hooks.sketch import CELLS, MAX_LOG_RATIO, cell_of

if TYPE_CHECKING:
    from trimtab.hooks.accumulate_cpu import CpuSums
    from trimtab.hooks.accumulate_torch import DeviceSums


@dataclass(frozen=True, slots=True)
class Drained:
    """A step's vector on its way to the host."""

    ready: Callable[[], bool]
    """True once `read` would not wait."""
    read: Callable[[], NDArray[np.float64]]
    """The vector, [SIZE]."""


class Accumulator:
    """Adds token batches up until they are drained, once a step.

    >>> accumulator = Accumulator()
    >>> logprobs = np.full((2, 3), -1.0, dtype=np.float32)
    >>> tensors = {"train_logprobs": logprobs, "old_logprobs": logprobs, "advantages": [1.0, -1.0]}
    >>> accumulator.add(TokenBatch(**tensors, loss_mask=np.ones((2, 3))))
    >>> from trimtab.hooks.layout import assemble
    >>> assemble(accumulator.drain().read()).positive.tokens
    3
    """

    def __init__(self) -> None:
        self._host, self._spare = np.zeros(SIZE), np.zeros(SIZE)
        self._cpu: CpuSums | None = None
        self._device: DeviceSums | None = None

    def add(self, batch: TokenBatch, reference: RatioReference = "recomputed") -> None:
        """Add one batch; `reference` names the denominator of the loss's ratio.

        Raises:
            ValueError: a tensor has the wrong shape; the message names it.
        """
        if not is_torch(batch.train_logprobs):
            self._host += measure(batch, reference)
        elif batch.train_logprobs.device.type == "cpu":
            self._add_on_cpu(batch, reference)
        else:
            if self._device is None:
                from trimtab.hooks.accumulate_torch import DeviceSums

                self._device = DeviceSums()
            self._device.add(batch, reference)

    def _add_on_cpu(self, batch: TokenBatch, reference: RatioReference) -> None:
        if self._cpu is None:
            from trimtab.hooks.accumulate_cpu import CpuSums

            self._cpu = CpuSums()
        if not self._cpu.add(parts(self._host), batch, reference):
            self._host += measure(_as_arrays(batch), reference)

    def drain(self) -> Drained:
        """Take what was added since the last drain. On a device the copy to the host is only started.

        The vector of a host is reused at the drain after the next.
        """
        host, self._host, self._spare = self._host, self._spare, self._host
        self._host.fill(0)
        if self._device is None:
            return Drained(lambda: True, lambda: host)
        device, host = self._device.drain(), host.copy()
        return Drained(device.ready, lambda: host + device.read())


def _as_arrays(batch: TokenBatch) -> TokenBatch:
    """The batch with numpy arrays in place of CPU tensors."""
    given = {f.name: getattr(batch, f.name) for f in fields(batch)}
    return TokenBatch(**{name: _as_array(value) if is_torch(value) else value for name, value in given.items()})


def _as_array(tensor: Any) -> Any:
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()


def is_torch(value: Any) -> bool:
    """Whether `value` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def measure(batch: TokenBatch, reference: RatioReference) -> NDArray[np.float64]:
    """[SIZE] vector of one batch of arrays.

    Raises:
        ValueError: a tensor has the wrong shape; the message names it.
    """
    vector = np.zeros(SIZE)
    part = parts(vector)
    live = np.asarray(batch.loss_mask) != 0
    values = {
        name: _plane(name, getattr(batch, name), live.shape) for name in TENSORS if getattr(batch, name) is not None
    }
    finite = {name: np.isfinite(value) for name, value in values.items()}
    for name, value in values.items():
        part.nonfinite[TENSORS.index(name)] += (
            (np.isnan(value) & live).sum(),
            ((value == np.inf) & live).sum(),
            ((value == -np.inf) & live).sum(),
            (~finite[name] & ~live).sum(),
        )
    advantages = values["advantages"]
    counted = live & finite["advantages"]
    signs = [counted & (advantages < 0), counted & (advantages == 0), counted & (advantages > 0)]
    for sketch, (numerator, denominator) in log_ratios(batch, reference).items():
        i = SKETCHES.index(sketch)
        part.observed[i] += 1
        usable = finite[numerator] & finite[denominator]
        for s, sign in enumerate(signs):
            log_ratio = values[numerator][sign & usable] - values[denominator][sign & usable]
            part.counts[i, s] += np.bincount(cell_of(log_ratio), minlength=CELLS)
            x = np.clip(log_ratio.astype(np.float64), -MAX_LOG_RATIO, MAX_LOG_RATIO)
            k = np.expm1(x) - x
            part.sums[i, s] += (x.size, x.sum(), x @ x, k.sum(), x @ k, k @ k)
    for s, sign in enumerate(signs):
        entropy = np.zeros(0)
        if "entropy" in values:
            entropy = values["entropy"][sign & finite["entropy"]].astype(np.float64)
        size = np.abs(advantages[sign]).sum(dtype=np.float64)
        part.totals[s] += (sign.sum(), size, entropy.size, entropy.sum(), entropy @ entropy)
    return vector


def _plane(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    array = np.asarray(value, dtype=np.float32)
    if array.shape == shape:
        return array
    if name == "advantages":
        if array.ndim == 1 and len(shape) == 2:
            array = array[:, None]
        if array.ndim == len(shape) and array.shape == (*shape[:-1], 1):
            return np.broadcast_to(array, shape)
    raise ValueError(f"{name}: shape {array.shape} does not fit loss_mask's {shape}")
