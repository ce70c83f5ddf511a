"""What one observed step costs the training thread, beside quantiles taken with `torch.quantile` in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from trimtab.hooks import native
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.transport.background import Background
from trimtab.hooks.wire import encode

SHAPE = (64, 512)
QUANTILES = (0.01, 0.05, 0.5, 0.95, 0.99)
WARM_UP = 20


def bench_hook(repeats: int = 300) -> dict[str, Any]:
    """Time `observe` + `end_step` on 64 x 512 tokens, and `torch.quantile` by advantage sign of the same ratios.

    In milliseconds, each with its `median`, `p10` and `p90`: `hook` is what the training thread spends, on one core,
    `thread` what the transport's thread spends later to make and encode the summary, and `quantile` the comparison.
    `ratio` is the median of `quantile` over that of `hook`. The two take turns, so that a busy machine slows both.
    """
    backend = "native" if native.LOADER.load(wait=True).measure else "numpy"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    tensors, transport = batch(), _Parked(capacity=20)
    hook, quantile = [], []
    try:
        with Emitter(transport, job="bench", attempt=1) as emitter:
            for step in range(WARM_UP + repeats):
                hook.append(_milliseconds(lambda: _observed_step(emitter, tensors)))
                if step % 10 == 0:
                    quantile.append(_milliseconds(lambda: _quantiles(tensors)))
            thread = list(transport.work())
    finally:
        torch.set_num_threads(threads)
    if emitter.failures:
        raise RuntimeError(f"{emitter.failures} calls failed, so their time means nothing")
    hook = hook[WARM_UP:]
    return {
        "tokens": SHAPE[0] * SHAPE[1],
        "threads": 1,
        "repeats": repeats,
        "backend": backend,
        "hook": spread(hook),
        "thread": spread(thread),
        "quantile": spread(quantile),
        "ratio": float(np.median(quantile) / np.median(hook)),
    }


def batch() -> dict[str, torch.Tensor]:
    """Log-probs 0.03 and 0.05 nats apart, a tenth of the tokens padding, one advantage a sequence."""
    generator = torch.Generator().manual_seed(0)
    old = -torch.empty(SHAPE).exponential_(1.5, generator=generator)
    return {
        "train_logprobs": (old + 0.03 * torch.randn(SHAPE, generator=generator)).clamp_(max=0),
        "old_logprobs": old,
        "rollout_logprobs": (old + 0.05 * torch.randn(SHAPE, generator=generator)).clamp_(max=0),
        "entropy": torch.rand(SHAPE, generator=generator),
        "advantages": torch.randn(SHAPE[0], generator=generator),
        "loss_mask": torch.rand(SHAPE, generator=generator) < 0.9,
    }


class _Parked(Background):
    """A transport whose thread does nothing, so that the training thread is timed alone. It keeps a few summaries only,
    since one that delivers gives their memory back.
    """

    dropped = 0

    def _work(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._close_at is not None)

    def work(self) -> Iterator[float]:
        """Milliseconds that a transport's thread would have spent on each summary before it is sent."""
        for report in self._queue:
            start = time.perf_counter()
            encode(report.whole())
            yield 1e3 * (time.perf_counter() - start)


def _observed_step(emitter: Emitter, tensors: dict[str, torch.Tensor]) -> None:
    emitter.observe(**tensors)
    emitter.end_step(step=0, scalars={"loss": 0.1, "reward_mean": 0.5})


def _quantiles(tensors: dict[str, torch.Tensor]) -> None:
    quantiles = torch.tensor(QUANTILES)
    positive = (tensors["advantages"] > 0)[:, None].expand(SHAPE)
    for top, bottom in (("train_logprobs", "old_logprobs"), ("old_logprobs", "rollout_logprobs")):
        log_ratio = tensors[top] - tensors[bottom]
        for sign in (positive, ~positive):
            torch.quantile(log_ratio[sign & tensors["loss_mask"]], quantiles)


def _milliseconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start)


def spread(times: list[float]) -> dict[str, float]:
    """The middle of some times, and what a tenth lies below and above."""
    p10, median, p90 = np.percentile(times, (10, 50, 90)).tolist()
    return {"median": median, "p10": p10, "p90": p90}
