"""The sum over ranks on a CUDA device: read a step late, without ever waiting for the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hook_runs import CAN, command, tensors

import trimtab
from trimtab.hooks.collective_torch import TorchCollective
from trimtab.hooks.controls import Controls
from trimtab.hooks.transport.memory import MemoryTransport

pytestmark = pytest.mark.gpu


def test_steps_are_merged_on_the_device_and_not_waited_for() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    on_device = {
        name: torch.from_numpy(np.asarray(value, dtype=np.float32)).cuda() for name, value in tensors().items()
    }
    try:
        collective = TorchCollective()
        assert collective.late == 1
        with trimtab.attach("memory:", job="run", attempt=1, capabilities=CAN, collective=collective) as emitter:
            assert isinstance(emitter.transport, MemoryTransport)
            for step in range(3):  # the first use of a kernel may wait
                emitter.observe(**on_device)
                emitter.end_step(step=step)
            emitter.transport.set_command(command(1, clip_low=0.1))
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
            try:
                emitter.observe(**on_device)
                controls = [emitter.end_step(step=step) for step in (3, 4)]
            finally:
                torch.cuda.set_sync_debug_mode("default")
        assert controls == [Controls(), Controls(clip_low=0.1)]
        assert emitter.failures == 0
        assert [(item.step, item.positive.tokens) for item in emitter.transport.sent] == [
            (0, 4), (1, 4), (2, 4), (3, 4), (4, 0)
        ]  # fmt: skip
    finally:
        dist.destroy_process_group()
