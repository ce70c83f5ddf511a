"""The same sums as `trimtab.hooks.accumulate.measure`, on the CUDA device of the tensors, without waiting for it.

No value is read back before the step's vector, so there is no branch on data: what is not usable is set to 0 and counts
by a weight of 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trimtab.hooks.accumulate import Drained
from trimtab.hooks.controls import RatioReference
from trimtab.hooks.layout import LIMITS, SIZE, SKETCHES, TENSORS, Parts, log_ratios, parts
from trimtab.hooks.records import MEAN_LEVELS, TokenBatch
from trimtab.hooks.responses import LENGTH_STARTS, LOG_CAPS, OVERFLOW, POSITION_STARTS
from trimtab.hooks.sketch import CELL_SHIFT, CELLS, MAX_EXPONENT, MAX_LOG_RATIO


class DeviceSums:
    """One vector on one device."""

    def __init__(self) -> None:
        self._vector: torch.Tensor | None = None

    @torch.no_grad()
    def add(self, batch: TokenBatch, reference: RatioReference) -> None:
        """Add one batch; all its tensors are brought to the device of the first batch's `train_logprobs`."""
        if self._vector is None:
            self._vector = torch.zeros(SIZE, dtype=torch.float64, device=batch.train_logprobs.device)
        device = self._vector.device
        part = parts(self._vector)
        live = torch.as_tensor(batch.loss_mask, device=device).detach() != 0
        raw = {
            name: plane(name, getattr(batch, name), live.shape, device)
            for name in TENSORS
            if getattr(batch, name) is not None
        }
        usable, values = {}, {}
        for name, value in raw.items():
            finite = torch.isfinite(value)
            ok = usable[name] = finite & (value <= LIMITS[name])
            values[name] = torch.where(ok, value, 0.0)
            infinite = ((value == torch.inf) & live, (value == -torch.inf) & live)
            kinds = (value.isnan() & live, *infinite, ~finite & ~live, finite & ~ok & live)
            part.nonfinite[TENSORS.index(name)] += torch.stack([kind.sum() for kind in kinds])
        advantages = values["advantages"]
        counted = live & usable["advantages"]
        signs = torch.stack([advantages < 0, advantages == 0, advantages > 0]).flatten(1).double()
        base = (advantages.sign().to(torch.int64) + 1) * CELLS
        for sketch, (numerator, denominator) in log_ratios(batch, reference).items():
            i = SKETCHES.index(sketch)
            both = counted & usable[numerator] & usable[denominator]
            log_ratio = torch.where(both, values[numerator] - values[denominator], 0.0)
            half = log_ratio.clamp(-(2.0**MAX_EXPONENT), 2.0**MAX_EXPONENT).half()
            cell = (half.view(torch.int16) >> CELL_SHIFT).to(torch.int64) + CELLS // 2 + base
            part.counts[i].view(-1).scatter_add_(
                0, cell.flatten(), torch.ones_like(cell.flatten(), dtype=torch.float64)
            )
            x = log_ratio.double().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
            k = torch.expm1(x) - x
            rows = torch.stack([both.double(), x, x * x, k, x * k, k * k]).flatten(1)
            part.sums[i] += signs @ rows.T
            if sketch == "mismatch" and live.ndim == 2:
                overflows = values[numerator] - values[denominator] > OVERFLOW
                _add_responses(part, live, usable[denominator], both, x, overflows & usable[numerator])
        n = counted.double()
        entropy_n, entropy = torch.zeros_like(n), torch.zeros_like(n)
        if "entropy" in values:
            entropy_n = (counted & usable["entropy"]).double()
            entropy = values["entropy"].double() * entropy_n
        rows = torch.stack([n, advantages.double().abs() * n, entropy_n, entropy, entropy * entropy]).flatten(1)
        part.totals[:] += signs @ rows.T
        for sketch in log_ratios(batch, reference):
            part.observed[SKETCHES.index(sketch)] += 1

    def take(self) -> torch.Tensor | None:
        """What was added since the last time, [SIZE]; None before the first batch."""
        vector = self._vector
        if vector is not None:
            self._vector = torch.zeros_like(vector)
        return vector


def _add_responses(
    part: Parts,
    live: torch.Tensor,
    sampled: torch.Tensor,
    counted: torch.Tensor,
    x: torch.Tensor,
    overflows: torch.Tensor,
) -> None:
    """`trimtab.hooks.responses.measure_responses`, from clamped log-ratios that are 0 where a token is not counted, and
    which of all tokens overflow."""
    width = live.shape[1]
    tokens = torch.stack([counted.double(), x, x.abs()], dim=-1)
    places = torch.arange(width, device=live.device)
    first = torch.where(live, places, width).amin(-1, keepdim=True) if width else 0
    part.positions[:] += _in_range(places - first, POSITION_STARTS).flatten(1) @ tokens.flatten(0, 1)
    tokens_of_row, lengths = tokens.sum(1), live.sum(-1)
    part.lengths[:] += _in_range(lengths, LENGTH_STARTS) @ tokens_of_row
    n, total = tokens_of_row[:, 0], tokens_of_row[:, 1]
    observed = n > 0
    ratio = total.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp() * observed
    counts = (lengths > 0, (lengths > 0) & ~(live & sampled).any(-1), observed)
    above = (*(total > cap for cap in LOG_CAPS), *(total.abs() > level * n for level in MEAN_LEVELS))
    part.responses[0] += 1
    part.responses[1:-1] += torch.stack([*counts, ratio, ratio * ratio, *above]).double().sum(-1)
    last = torch.where(live, places, -1).amax(-1, keepdim=True) if width else 0
    between = (places > first) & (places < last) & ~live
    part.responses[-1] += (between & overflows & sampled).sum()


def _in_range(values: torch.Tensor, starts: tuple[int, ...]) -> torch.Tensor:
    """[ranges, ...] 1 where a value is in the range that begins at each of `starts`; float64."""
    ends = (*starts[1:], torch.iinfo(values.dtype).max)
    return torch.stack([(values >= start) & (values < end) for start, end in zip(starts, ends, strict=True)]).double()


def landing(vector: torch.Tensor) -> Drained:
    """Start the copy of a device's vector to the host."""
    if vector.device.type == "cpu":
        return Drained(lambda: True, lambda: _numpy(vector))
    pinned = torch.empty(vector.shape, dtype=vector.dtype, pin_memory=True)
    pinned.copy_(vector, non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record(torch.cuda.current_stream(vector.device))  # the copy's: another device may be the current one

    def read() -> NDArray[np.float64]:
        copied.synchronize()
        return _numpy(pinned)

    return Drained(copied.query, read)


def _numpy(vector: torch.Tensor) -> NDArray[np.float64]:
    array: NDArray[np.float64] = vector.numpy()
    return array


def plane(name: str, value: Any, shape: tuple[int, ...], device: torch.device | None = None) -> torch.Tensor:
    """`value` as float32 of `shape`, on `device` where one is given; advantages may be one a sequence.

    Raises:
        ValueError: the shape does not fit; the message names the tensor.
    """
    if isinstance(value, torch.Tensor) and value.dtype == torch.float32 and value.shape == shape and device is None:
        return value
    tensor = torch.as_tensor(value).detach().to(device=device, dtype=torch.float32, non_blocking=True)
    if tensor.shape == shape:
        return tensor
    if name == "advantages":
        if tensor.ndim == 1 and len(shape) == 2:
            tensor = tensor[:, None]
        if tensor.ndim == len(shape) and tensor.shape == (*shape[:-1], 1):
            return tensor.expand(shape)
    raise ValueError(f"{name}: shape {tuple(tensor.shape)} does not fit loss_mask's {tuple(shape)}")
