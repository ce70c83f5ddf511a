"""What a fake-quantised linear layer costs in each number format, beside the plain one in the same run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trimtab.api.bench.spread import Spread
from trimtab.trainer.quant import FORMATS, NumberFormat, QuantLinear, kernels

Backend = Literal["native", "torch"]
TOKENS = 2048
WIDTHS = (64, 512, 1024)
TORCH_WIDTHS = (64, 512)
"""Where the torch code is measured too, though the kernels are there."""
SCALED = {name: fmt for name, fmt in FORMATS.items() if not fmt.scale_free}
SMALL_REPEATS = 10
"""Rounds at the smallest width for one at the others."""
WARM_UP = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCost:
    """Cost of one forward pass that quantises `TOKENS` activations and the weight, on one thread of the CPU."""

    format: str
    width: int
    """Input and output features."""
    kernels: Backend
    milliseconds: float
    """Median."""
    ratio: float
    """Median over rounds of this pass against the plain float32 one taken just before it."""
    ratio_p10: float
    ratio_p90: float


def bench_linear(rounds: int, on_width: Callable[[], None] = lambda: None) -> list[LinearCost]:
    """The cost of every format at every width that its blocks divide; without compiled kernels, of the torch code
    alone.

    Formats take turns, each with a plain pass just before it, so that a machine that slows down slows both. `on_width`
    is called after each width.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    costs = []
    try:
        for width in WIDTHS:
            costs += _at_width(width, rounds * SMALL_REPEATS if width == min(WIDTHS) else rounds)
            on_width()
    finally:
        torch.set_num_threads(threads)
    return costs


@torch.no_grad()
def _at_width(width: int, rounds: int) -> list[LinearCost]:
    generator = torch.Generator().manual_seed(width)
    x = torch.randn(TOKENS, width, generator=generator)
    linear = nn.Linear(width, width)
    fitting = {name: fmt for name, fmt in SCALED.items() if width % fmt.block("weight")[1] == 0}
    costs = []
    if kernels.backend() == "native":
        layers = {name: _layer(QuantLinear(linear, fmt), x) for name, fmt in fitting.items()}
        costs += _costs("native", layers, linear, x, rounds)
    if kernels.backend() == "torch" or width in TORCH_WIDTHS:
        in_torch = {name: _in_torch(linear, fmt, x) for name, fmt in fitting.items()}
        costs += _costs("torch", in_torch, linear, x, rounds)
    return costs


def _costs(
    backend: Backend, contenders: dict[str, Callable[[], Tensor]], linear: nn.Linear, x: Tensor, rounds: int
) -> list[LinearCost]:
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for _ in range(WARM_UP + rounds):
        for name, run in contenders.items():
            plain = _seconds(lambda: F.linear(x, linear.weight, linear.bias))
            pairs[name].append((_seconds(run), plain))
    return [_cost(name, backend, linear.in_features, taken[WARM_UP:]) for name, taken in pairs.items()]


def _layer(layer: QuantLinear, x: Tensor) -> Callable[[], Tensor]:
    return lambda: layer(x)


def _in_torch(linear: nn.Linear, fmt: NumberFormat, x: Tensor) -> Callable[[], Tensor]:
    def run() -> Tensor:
        x_q = fmt.dequantize(fmt.quantize(x, "activation"), "activation")
        return F.linear(x_q, fmt.dequantize(fmt.quantize(linear.weight, "weight"), "weight"), linear.bias)

    return run


def _seconds(run: Callable[[], Tensor]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _cost(name: str, backend: Backend, width: int, pairs: list[tuple[float, float]]) -> LinearCost:
    ratio = Spread.of(mine / plain for mine, plain in pairs)
    return LinearCost(
        format=name,
        width=width,
        kernels=backend,
        milliseconds=1000 * statistics.median(mine for mine, _ in pairs),
        ratio=ratio.median,
        ratio_p10=ratio.p10,
        ratio_p90=ratio.p90,
    )
