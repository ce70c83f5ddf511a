"""Controls that a compiled loss reads."""

from __future__ import annotations

import math

import pytest
import torch

from trimtab.hooks.controls import Controls
from trimtab.hooks.live_tensors import LiveTensors


class Counting:
    """A backend that counts the graphs that it is given."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> torch.fx.GraphModule:
        self.graphs += 1
        return graph


def weighted(ratio: torch.Tensor, importance: torch.Tensor, live: LiveTensors) -> torch.Tensor:
    clipped = torch.minimum(torch.maximum(ratio, live.ratio_low), live.ratio_high)
    banded = torch.minimum(torch.maximum(importance, live.importance_low), live.importance_high)
    weight = torch.where(live.importance_on > 0, banded, torch.ones_like(banded))
    return torch.minimum(ratio, clipped) * weight * live.lr_scale


def test_every_number_is_what_the_controls_say() -> None:
    live = LiveTensors(Controls(clip_low=0.25, clip_high=0.5))
    names = ("ratio_low", "ratio_high", "importance_low", "importance_high", "importance_on", "kl_coef", "lr_scale")
    assert [getattr(live, name).item() for name in names] == [0.75, 1.5, 0.0, math.inf, 0.0, 0.0, 1.0]
    live.update(
        Controls(
            clip_low=0.5,
            clip_high=0.25,
            kl_coef=0.125,
            lr_scale=0.5,
            importance="tis",
            importance_low=0.25,
            importance_high=4.0,
        )
    )
    assert [getattr(live, name).item() for name in names] == [0.5, 1.25, 0.25, 4.0, 1.0, 0.125, 0.5]
    live.update(Controls(clip_low=0.25, clip_high=0.5))  # lifted again
    assert [getattr(live, name).item() for name in names] == [0.75, 1.5, 0.0, math.inf, 0.0, 0.0, 1.0]


def test_the_tensors_stay_the_same_ones_at_the_same_addresses() -> None:
    live = LiveTensors(Controls())
    before = {name: (value, value.data_ptr()) for name, value in vars(live).items() if isinstance(value, torch.Tensor)}
    live.update(Controls(clip_low=0.1, clip_high=0.1, lr_scale=0.5, kl_coef=0.1, importance="tis"))
    assert len(before) == 7
    for name, (value, address) in before.items():
        assert getattr(live, name) is value
        assert value.data_ptr() == address
        assert (value.shape, value.dtype, value.requires_grad) == ((), torch.float32, False)


def test_a_compiled_loss_sees_new_values_and_is_compiled_once() -> None:
    counting = Counting()
    compiled = torch.compile(weighted, backend=counting)
    live = LiveTensors(Controls())
    ratio, importance = torch.rand(4, 8) * 2, torch.rand(4, 8) * 4
    for step in range(10):
        live.update(
            Controls(
                clip_low=0.05 * step,
                clip_high=0.1 * step,
                lr_scale=1 / (1 + step),
                importance="tis" if step % 2 else "none",
                importance_high=1.0 + step,
            )
        )
        torch.testing.assert_close(compiled(ratio, importance, live), weighted(ratio, importance, live))
    assert counting.graphs == 1


def test_with_numbers_it_would_be_compiled_again_and_again() -> None:
    counting = Counting()
    compiled = torch.compile(lambda ratio, controls: ratio.clamp(max=1 + controls.clip_high), backend=counting)
    for step in range(4):
        compiled(torch.rand(4), Controls(clip_high=0.1 * (step + 1)))
    assert counting.graphs > 1


@pytest.mark.gpu
def test_nothing_waits_for_the_device_and_a_captured_graph_sees_new_values() -> None:
    live = LiveTensors(Controls(), device="cuda")
    ratio = torch.full((4,), 9.0, device="cuda")
    torch.minimum(ratio, live.ratio_high)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        clipped = torch.minimum(ratio, live.ratio_high)
    torch.cuda.set_sync_debug_mode("error")
    live.update(Controls(clip_high=0.5))
    graph.replay()
    torch.cuda.set_sync_debug_mode("default")
    assert clipped.tolist() == [1.5] * 4
