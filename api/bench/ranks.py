"""What reporting as one adds to an observed step, with processes that talk by gloo on this machine."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from trimtab.api.bench.hook import SHAPE, WARM_UP, batch, spread
from trimtab.hooks import native
from trimtab.hooks.collective_torch import TorchCollective
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.rank_emitter import RankEmitter
from trimtab.hooks.transport.silent import SilentTransport


def bench_ranks(ranks: int = 2, repeats: int = 300) -> dict[str, Any]:
    """Time `end_step` on each of `ranks` processes that have observed 64 x 512 tokens each, with a collective and
    without one, in turns.

    In milliseconds, of rank 0, each with its `median`, `p10` and `p90`. Before each, the ranks wait for one another, so
    that `together` is the cost of the sum and not of waiting for a rank that is behind.

    Raises:
        RuntimeError: a process failed.
    """
    native.LOADER.load(wait=True)  # so that the processes find it compiled
    with tempfile.TemporaryDirectory() as folder:
        context = get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        work = partial(_rank, ranks=ranks, repeats=repeats, store=str(Path(folder) / "store"), answer=theirs)
        processes = [context.Process(target=work, args=(rank,), daemon=True) for rank in range(ranks)]
        for process in processes:
            process.start()
        theirs.close()
        try:
            alone, together = ours.recv()
        except EOFError:
            raise RuntimeError("a process failed; its traceback is above") from None
        finally:
            for process in processes:
                process.join()
    return {
        "tokens": SHAPE[0] * SHAPE[1],
        "ranks": ranks,
        "repeats": repeats,
        "alone": spread(alone),
        "together": spread(together),
    }


def _rank(rank: int, *, ranks: int, repeats: int, store: str, answer: Any) -> None:
    torch.set_num_threads(1)
    native.LOADER.load(wait=True)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    try:
        tensors = batch()
        with (
            Emitter(SilentTransport(), job="alone", attempt=1) as alone,
            RankEmitter(SilentTransport(), TorchCollective(), job="together", attempt=1) as together,
        ):
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(WARM_UP + repeats):
                for emitter, taken in zip((alone, together), times, strict=True):
                    emitter.observe(**tensors)
                    dist.barrier()
                    taken.append(_end_step(emitter))
            failures = alone.failures + together.failures
        if failures:
            raise RuntimeError(f"{failures} calls failed, so their time means nothing")
        if rank == 0:
            answer.send(tuple(taken[WARM_UP:] for taken in times))
    finally:
        dist.destroy_process_group()


def _end_step(emitter: Emitter) -> float:
    start = time.perf_counter()
    emitter.end_step(step=0, scalars={"loss": 0.1, "reward_mean": 0.5})
    return 1e3 * (time.perf_counter() - start)
