"""A world of one needs no process group, and more processes than rows are refused before step 0."""

from __future__ import annotations

import pytest
import torch

from trimtab.trainer.config import ConfigError, RunConfig, validated
from trimtab.trainer.sharding import check_world
from trimtab.trainer.world import World, world_of_environment


def test_alone_everything_is_ones_own() -> None:
    alone, values = World(), torch.arange(4)
    assert alone.first
    assert alone.gathered("mine") == ["mine"]
    assert alone.from_first("mine") == "mine"
    assert alone.first_then_others(lambda: 3) == 3
    assert torch.equal(alone.sum(values), values)
    assert torch.equal(alone.computed(4, lambda rows: values[rows]), values)
    alone.wait()


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_shares_are_every_row_once_and_in_order(size: int) -> None:
    shares = [World(rank, size).share(7) for rank in range(size)]
    assert torch.equal(torch.cat(shares), torch.arange(7))
    assert {len(share) for share in shares} <= {7 // size, 7 // size + 1}


@pytest.mark.parametrize(
    "environment", [{}, {"WORLD_SIZE": "4"}, {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "x", "MASTER_PORT": "1"}]
)
def test_without_a_launcher_a_process_is_alone(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with world_of_environment() as world:
        assert world == World()


@pytest.mark.parametrize(
    ("changes", "size", "message"),
    [
        (
            {"update": {"minibatches": 6}},
            5,
            r"update\.minibatches: 6 leaves minibatches of 4 responses, fewer than the 5",
        ),
        ({"rollout": {"prompts": 2, "group_size": 8}}, 3, r"rollout\.prompts: 2 is fewer than the 3 processes"),
        ({"evaluation": {"prompts": 1}}, 2, r"evaluation\.prompts: 1 is fewer than the 2 processes"),
    ],
)
def test_more_processes_than_rows_are_refused(tiny: RunConfig, changes: dict, size: int, message: str) -> None:
    data = tiny.model_dump()
    config = validated(data | {name: data[name] | change for name, change in changes.items()})
    check_world(config, World(0, size - 1))
    with pytest.raises(ConfigError, match=message):
        check_world(config, World(0, size))
