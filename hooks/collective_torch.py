"""The sum over ranks by torch.distributed."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from trimtab.hooks.accumulate import Drained
from trimtab.hooks.accumulate_torch import landing


class TorchCollective:
    """The processes of a torch process group, one all-reduce a step.

    With NCCL the sum is made on the device and nothing waits for it; with any other backend it is made on the host,
    which waits for the slowest rank and, where the tensors are on a device, for that device.

    Args:
        group: all ranks by default. Ranks that hold the same tokens (tensor parallel) belong in it as well, so that
            they get the controls; one of them calls `observe`, and the others do not.

    Raises:
        ValueError: there is no process group yet, or this process is not in `group`.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise ValueError(
                "collective: torch.distributed has no process group yet; call init_process_group before attach"
            )
        self._group = group
        self.rank = dist.get_rank(group)
        """This process in the group."""
        if self.rank < 0:
            raise ValueError("collective: this process is not in the group; attach it with the group that it is in")
        self.size = dist.get_world_size(group)
        """Processes in the group."""
        on_device = torch.cuda.is_available() and "cuda:nccl" in dist.get_backend_config(group)
        self._device = torch.device("cuda", torch.cuda.current_device()) if on_device else None
        self.late = 1 if on_device else 0
        """Sums that are not waited for."""

    @torch.no_grad()
    def sum(self, host: NDArray[np.float64], device: torch.Tensor | None = None) -> Drained:
        """Start the sum of `host` and `device` over the ranks; see `Collective`."""
        vector = torch.from_numpy(host)
        if self._device is not None:
            vector = vector.pin_memory().to(self._device, non_blocking=True)
        if device is not None:
            vector[: len(device)] += device.to(vector.device)
        dist.all_reduce(vector, group=self._group)
        return landing(vector)
