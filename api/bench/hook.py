"""What one observed step costs the training thread, beside quantiles taken with `torch.quantile` in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from trimtab.hooks import native
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.records import Command
from trimtab.hooks.transport.background import Background
from trimtab.hooks.wire import encode

SHAPE = (64, 512)
QUANTILES = (0.01, 0.05, 0.5, 0.95, 0.99)
WARM_UP = 20


def bench_hook(repeats: int = 300) -> dict[str, Any]:
    """Time `observe` + `end_step` on 64 x 512 tokens, and `torch.quantile` by advantage sign of the same ratios.

    In milliseconds, each with its `median`, `p10` and `p90`: `hook` is what the training thread spends, on one core,
    `thread` what the transport's thread spends later to make and encode the summary, and `quantile` the comparison.
    `ratio` is the median of `quantile` over that of `hook`.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        hook, thread = _hook(repeats)
        quantile = _quantile(max(repeats // 10, 10))
    finally:
        torch.set_num_threads(threads)
    return {
        "tokens": SHAPE[0] * SHAPE[1],
        "threads": 1,
        "repeats": repeats,
        "backend": "native" if native.load().measure else "numpy",
        "hook": _spread(hook),
        "thread": _spread(thread),
        "quantile": _spread(quantile),
        "ratio": float(np.median(quantile) / np.median(hook)),
    }


def _batch() -> dict[str, torch.Tensor]:
    """Log-probs 0.03 and 0.05 nats apart, a tenth of the tokens padding, one advantage a sequence."""
    generator = torch.Generator().manual_seed(0)
    old = -torch.empty(SHAPE).exponential_(1.5, generator=generator)
    return {
        "train_logprobs": old + 0.03 * torch.randn(SHAPE, generator=generator),
        "old_logprobs": old,
        "rollout_logprobs": old + 0.05 * torch.randn(SHAPE, generator=generator),
        "entropy": torch.rand(SHAPE, generator=generator),
        "advantages": torch.randn(SHAPE[0], generator=generator),
        "loss_mask": torch.rand(SHAPE, generator=generator) < 0.9,
    }


class _Parked(Background):
    """A transport whose thread does nothing, so that the training thread is timed alone."""

    dropped = 0

    def command(self) -> Command | None:
        """None: nobody answers."""
        return None

    def _work(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._close_at is not None)

    def work(self) -> Iterator[float]:
        """Milliseconds that a transport's thread would have spent on each summary before it is sent."""
        for report in self._queue:
            start = time.perf_counter()
            encode(report.whole())
            yield 1e3 * (time.perf_counter() - start)


def _hook(repeats: int) -> tuple[list[float], list[float]]:
    tensors = _batch()
    transport = _Parked()
    with Emitter(transport, job="bench", attempt=1) as emitter:

        def step() -> None:
            emitter.observe(**tensors)
            emitter.end_step(step=0, scalars={"loss": 0.1, "reward_mean": 0.5})

        times = _times(step, WARM_UP + repeats)[WARM_UP:]
    if emitter.failures:
        raise RuntimeError(f"{emitter.failures} steps failed, so their time means nothing")
    return times, list(transport.work())


def _quantile(repeats: int) -> list[float]:
    tensors = _batch()
    quantiles = torch.tensor(QUANTILES)
    positive = (tensors["advantages"] > 0)[:, None].expand(SHAPE)

    def step() -> None:
        for top, bottom in (("train_logprobs", "old_logprobs"), ("old_logprobs", "rollout_logprobs")):
            log_ratio = tensors[top] - tensors[bottom]
            for sign in (positive, ~positive):
                torch.quantile(log_ratio[sign & tensors["loss_mask"]], quantiles)

    return _times(step, repeats)


def _times(step: Callable[[], None], repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def _spread(times: list[float]) -> dict[str, float]:
    p10, median, p90 = np.percentile(times, (10, 50, 90)).tolist()
    return {"median": median, "p10": p10, "p90": p90}
