"""The benchmark of the collective runs and reports what it says; how fast is not for a test to judge."""

from __future__ import annotations

from trimtab.api.bench.ranks import bench_ranks


def test_figures_are_complete() -> None:
    figures = bench_ranks(ranks=2, repeats=5)
    assert (figures["ranks"], figures["repeats"], figures["tokens"]) == (2, 5, 64 * 512)
    for name in ("alone", "together"):
        assert 0 < figures[name]["p10"] <= figures[name]["median"] <= figures[name]["p90"]
