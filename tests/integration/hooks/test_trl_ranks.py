"""TRL in two processes: reported as one, and steered at the same step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rank_processes import RankProcesses
from trl_ranks import train_attached


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankProcesses]:
    with RankProcesses(2, tmp_path_factory.mktemp("ranks")) as processes:
        yield processes


def test_two_processes_report_as_one_and_are_steered_at_the_same_step(ranks: RankProcesses, tmp_path: Path) -> None:
    first, second = ranks.run(train_attached, tmp_path)
    assert (first["processes"], first["failures"], second["failures"]) == (2, 0, 0)
    assert [summary.step for summary in first["sent"]] == [1, 2, 3, 4]
    for summary in first["sent"]:
        assert (summary.ranks, summary.failed_ranks) == (2, 0)
        assert summary.sequences.sequences == 8  # four on each
    assert first["epsilons"] == second["epsilons"]
    assert 0.05 in first["epsilons"]
    assert all(torch.equal(value, second["weights"][name]) for name, value in first["weights"].items())
