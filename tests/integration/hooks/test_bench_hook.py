"""The hook's benchmark runs and reports what it says; how fast is not for a test to judge."""

from __future__ import annotations

import torch

from trimtab.api.bench.hook import bench_hook


def test_figures_are_complete_and_threads_are_given_back() -> None:
    threads = torch.get_num_threads()
    figures = bench_hook(repeats=10)
    assert torch.get_num_threads() == threads
    assert (figures["tokens"], figures["threads"], figures["repeats"]) == (64 * 512, 1, 10)
    assert figures["backend"] in ("native", "numpy")
    for name in ("hook", "thread", "quantile"):
        assert 0 < figures[name]["p10"] <= figures[name]["median"] <= figures[name]["p90"]
    assert figures["ratio"] == figures["quantile"]["median"] / figures["hook"]["median"]
