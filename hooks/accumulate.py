"""Sum up the tensors of a step, micro-batch by micro-batch, without keeping them.

`measure` is the reference, in numpy. Arrays and CPU tensors go to its compiled form, `trimtab.hooks.native`, as soon
as there is one; tensors on a CUDA device go to `trimtab.hooks.accumulate_torch`, which never waits for the device. All
three give the same vector. Tensors on any other device are copied to the host first, which waits for that device:
not all of them have float64, pinned memory and events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.controls import RatioReference
from trimtab.hooks.layout import LIMITS, SIZE, SKETCHES, TENSORS, log_ratios, parts
from trimtab.hooks.native import LOADER, NativeSums
from trimtab.hooks.planes import Planes, is_torch, planes
from trimtab.hooks.records import TokenBatch
from trimtab.hooks.responses import measure_responses
from trimtab.hooks.sketch import CELLS, MAX_LOG_RATIO, cell_of

if TYPE_CHECKING:
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
    >>> parts(accumulator.drain().read()).totals[:, 0]
    array([3., 0., 3.])
    """

    def __init__(self) -> None:
        self._host, self._spare = np.zeros(SIZE), np.zeros(SIZE)
        self._native: NativeSums | None = None
        self._device: DeviceSums | None = None

    def add(self, batch: TokenBatch, reference: RatioReference = "recomputed") -> None:
        """Add one batch; `reference` names the denominator of the loss's ratio.

        Raises:
            ValueError: a tensor has the wrong shape; the message names it.
        """
        if is_torch(batch.train_logprobs) and batch.train_logprobs.device.type == "cuda":
            if self._device is None:
                from trimtab.hooks.accumulate_torch import DeviceSums

                self._device = DeviceSums()
            self._device.add(batch, reference)
            return
        ready = planes(batch)
        if self._native is None and (compiled := LOADER.load().measure) is not None:
            self._native = NativeSums(compiled)
        if self._native is None:
            self._host += measure(batch, ready, reference)
        else:
            self._native.add(self._host, batch, ready, reference)

    def drain(self) -> Drained:
        """Take what was added since the last drain. On a device the copy to the host is only started.

        The vector of a host is reused at the drain after the next.
        """
        host, device = self.take()
        if device is None:
            return Drained(lambda: True, lambda: host)
        from trimtab.hooks.accumulate_torch import landing

        host, landed = host.copy(), landing(device)
        return Drained(landed.ready, lambda: host + landed.read())

    def take(self) -> tuple[NDArray[np.float64], Any]:
        """The same in its two parts, [SIZE] each: on the host, where it is reused as above, and on the device, or
        None."""
        host, self._host, self._spare = self._host, self._spare, self._host
        self._host.fill(0)
        return host, None if self._device is None else self._device.take()


def measure(batch: TokenBatch, ready: Planes, reference: RatioReference) -> NDArray[np.float64]:
    """[SIZE] vector of one batch, whose tensors are in `ready`."""
    vector = np.zeros(SIZE)
    part = parts(vector)
    live = ready.mask != 0
    by_sequence = ready.values["advantages"]
    advantages = by_sequence if by_sequence.shape == live.shape else np.broadcast_to(by_sequence[:, None], live.shape)
    values = ready.values | {"advantages": advantages}
    usable = {name: np.isfinite(value) & (value <= LIMITS[name]) for name, value in values.items()}
    for name, value in values.items():
        part.nonfinite[TENSORS.index(name)] += (
            (np.isnan(value) & live).sum(),
            ((value == np.inf) & live).sum(),
            ((value == -np.inf) & live).sum(),
            (~np.isfinite(value) & ~live).sum(),
            (np.isfinite(value) & ~usable[name] & live).sum(),
        )
    counted = live & usable["advantages"]
    signs = [counted & (advantages < 0), counted & (advantages == 0), counted & (advantages > 0)]
    for sketch, (numerator, denominator) in log_ratios(batch, reference).items():
        i = SKETCHES.index(sketch)
        part.observed[i] += 1
        both = usable[numerator] & usable[denominator]
        for s, sign in enumerate(signs):
            log_ratio = values[numerator][sign & both] - values[denominator][sign & both]
            part.counts[i, s] += np.bincount(cell_of(log_ratio), minlength=CELLS)
            x = np.clip(log_ratio.astype(np.float64), -MAX_LOG_RATIO, MAX_LOG_RATIO)
            k = np.expm1(x) - x
            part.sums[i, s] += (x.size, x.sum(), x @ x, k.sum(), x @ k, k @ k)
        if sketch == "mismatch" and live.ndim == 2:
            tokens = counted & both
            log_ratio = np.where(both, values[numerator], 0) - np.where(both, values[denominator], 0)
            measure_responses(part, live, usable[denominator], tokens, log_ratio)
    for s, sign in enumerate(signs):
        entropy = np.zeros(0)
        if "entropy" in values:
            entropy = values["entropy"][sign & usable["entropy"]].astype(np.float64)
        size = np.abs(advantages[sign]).sum(dtype=np.float64)
        part.totals[s] += (sign.sum(), size, entropy.size, entropy.sum(), entropy @ entropy)
    return vector
