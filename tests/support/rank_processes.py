"""Ranks that are processes of a gloo group. They are started once and run one program after another."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class RankProcesses:
    """`size` processes with one thread each, which may have children of their own. Programs and what they give have to
    be importable here and there."""

    def __init__(self, size: int, folder: Path) -> None:
        context = get_context("spawn")
        self._ends, self._processes = [], []
        for rank in range(size):
            mine, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, rank, size, folder / "store"))
            process.start()
            self._ends.append(mine)
            self._processes.append(process)

    def run(self, program: Callable[..., T], *arguments: Any) -> list[T]:
        """What `program(*arguments)` gives on each rank.

        Raises:
            RuntimeError: it raised on some; with their tracebacks.
        """
        for end in self._ends:
            end.send((program, arguments))
        answers = [end.recv() for end in self._ends]
        if failed := [answer for done, answer in answers if not done]:
            raise RuntimeError("\n".join(failed))
        return [answer for _, answer in answers]

    def __enter__(self) -> RankProcesses:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()


def _serve(end: Connection, rank: int, size: int, store: Path) -> None:
    import torch
    import torch.distributed as dist

    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    while True:
        try:
            program, arguments = end.recv()
        except EOFError:
            break
        try:
            end.send((True, program(*arguments)))
        except BaseException:
            end.send((False, f"rank {rank}: {traceback.format_exc()}"))
    dist.destroy_process_group()
