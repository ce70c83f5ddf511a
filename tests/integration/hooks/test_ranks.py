"""Ranks that are processes of a gloo group report and are steered as one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist
from hook_runs import command
from rank_play import Step, play_together
from rank_processes import RankProcesses
from token_batches import accumulated, poisoned, random_batch

from trimtab.hooks.collective_torch import TorchCollective
from trimtab.hooks.controls import Controls
from trimtab.hooks.native import LOADER


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankProcesses]:
    LOADER.load(wait=True)  # so that the processes find it compiled
    with RankProcesses(request.param, tmp_path_factory.mktemp("ranks")) as processes:
        yield processes


def test_uneven_ranks_one_of_them_empty_report_what_one_process_would(ranks: RankProcesses) -> None:
    batches = [random_batch(seed, (2 + 3 * seed, 30)) for seed in range(4)]
    batches[1] = poisoned(batches[1], 1)
    first, *others = ranks.run(
        play_together, [Step(batches={1: batches}), Step(batches={0: batches[:1], 1: batches[1:]})]
    )
    wanted = accumulated(*batches)
    for sent in first.sent:
        assert (sent.ranks, sent.failed_ranks) == (1 + len(others), 0)
        assert sent.nonfinite == wanted.nonfinite
        for name, sketch in wanted.sketches.items():
            for ours, theirs in zip(sent.sketches[name].signs(), sketch.signs(), strict=True):
                assert (ours.bins, ours.counts) == (theirs.bins, theirs.counts)
                assert ours.sums == pytest.approx(theirs.sums, rel=1e-6, abs=1e-9)
    for rank in others:
        assert rank.last is not None
        assert rank.last.sketches == first.sent[-1].sketches


def test_a_command_takes_effect_on_all_ranks_at_the_same_step(ranks: RankProcesses) -> None:
    steps = [Step(), Step(command=command(1, clip_low=0.1, clip_high=0.3)), Step(), Step(command=command(2)), Step()]
    first, *others = ranks.run(play_together, steps)
    own, tight = Controls(), Controls(clip_low=0.1)
    assert first.controls == [own, tight, tight, own, own]
    assert all((rank.controls, rank.generations) == (first.controls, first.generations) for rank in others)
    assert [len(item.refusals) for item in first.sent] == [0, 0, 1, 1, 0]


def test_rank_0s_switch_counts_and_another_ranks_does_not(ranks: RankProcesses) -> None:
    off, on = {"TRIMTAB_DISABLE": "1"}, {"TRIMTAB_DISABLE": "0"}
    steps = [Step(command=command(1, clip_low=0.1), environment={1: off}), Step(environment={1: on})]
    steps += [Step(environment={0: off}), Step(environment={0: on}), Step()]
    first, *others = ranks.run(play_together, steps)
    assert [controls.clip_low for controls in first.controls] == [0.1, 0.1, 0.2, 0.2, 0.2]
    assert [item.step for item in first.sent] == [0, 1, 3, 4]
    assert all(rank.controls == first.controls for rank in others)


def test_a_dead_agent_leaves_every_rank_as_it_is(ranks: RankProcesses) -> None:
    """Nobody listens on the address of rank 0."""
    played = ranks.run(play_together, [Step(), Step()], "http://127.0.0.1:9")
    assert [rank.controls for rank in played] == [[Controls()] * 2] * len(played)
    assert {rank.failures for rank in played} == {0}


def test_an_attempt_and_a_rank_that_fails(ranks: RankProcesses) -> None:
    good = random_batch(1)
    steps = [Step(batches={1: [{"train_logprobs": "none"}, good]}), Step(attempt=2)]
    first, *others = ranks.run(play_together, steps)
    assert [(item.attempt, item.ranks, item.failed_ranks) for item in first.sent] == [
        (1, 1 + len(others), 1),
        (2, 1 + len(others), 0),
    ]
    assert first.sent[0].sketches == accumulated(good).sketches
    assert [rank.attempt for rank in others] == [2] * len(others)


def test_no_process_group_is_no_collective() -> None:
    assert not dist.is_initialized()
    with pytest.raises(ValueError, match=r"collective: torch\.distributed has no process group yet; call init_process"):
        TorchCollective()
