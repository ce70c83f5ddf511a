"""The processes that train one model together, as torchrun starts them; one process alone is a world of one.

Every method but `share` and `seed_rounding` is a collective where there are several: all of them call it, in the same
order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
_LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What a launcher sets in the environment of each process."""


@dataclass(frozen=True, slots=True)
class World:
    """This process among those of the default process group.

    >>> World().share(3)
    tensor([0, 1, 2])
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def share(self, count: int) -> Tensor:
        """[n] this process's of `count` rows: whole runs of them, in the order of the ranks."""
        return torch.arange(count).tensor_split(self.size)[self.rank]

    def gathered(self, mine: T) -> list[T]:
        """What each process has, in the order of the ranks."""
        if self.size == 1:
            return [mine]
        everyone: list[Any] = [None] * self.size
        dist.all_gather_object(everyone, mine)
        return everyone

    def rows(self, mine: Tensor) -> Tensor:
        """The rows of all processes, in the order of the ranks."""
        return mine if self.size == 1 else torch.cat(self.gathered(mine.cpu())).to(mine.device)

    def computed(self, count: int, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """[count, ...] what `compute` gives for the rows that it is given the numbers of, each process doing its
        share."""
        return self.rows(compute(self.share(count)))

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the processes, the same bits on all of them."""
        if self.size > 1:
            values = values.clone()
            dist.all_reduce(values)
        return values

    def from_first(self, value: T) -> T:
        """What the first process has."""
        if self.size == 1:
            return value
        box: list[Any] = [value if self.first else None]
        dist.broadcast_object_list(box, src=0)
        return box[0]  # type: ignore[no-any-return]

    def seed_rounding(self, seed: int, step: int = 0) -> None:
        """Seed torch's own generators, which rounding at random draws from, apart on each process; no collective."""
        torch.manual_seed((seed + self.rank * 1_000_003 + step) % 2**63)

    def wait(self) -> None:
        """Until every process is here."""
        if self.size > 1:
            dist.barrier()

    def first_then_others(self, make: Callable[[], T]) -> T:
        """`make()`, by the first process before the others, which then find what it has put into a cache."""
        if not self.first:
            self.wait()
        try:
            return make()
        finally:
            if self.first:
                self.wait()


def launched_rank() -> int:
    """Of this process among those that torchrun has started, before they have found each other; 0 alone."""
    return int(os.environ["RANK"]) if set(_LAUNCHED) <= set(os.environ) else 0


@contextmanager
def world_of_environment() -> Iterator[World]:
    """The world that torchrun has made, or that of this process alone; left at the end.

    Tensors on the CPU are talked about by gloo, and those on CUDA devices, of which each process takes the one of its
    local rank, by NCCL.
    """
    if not set(_LAUNCHED) <= set(os.environ) or os.environ["WORLD_SIZE"] == "1":
        yield World()
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "cpu:gloo")
    try:
        yield World(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
