"""Every published algorithm is a complete and valid choice of the controls that tell them apart."""

from __future__ import annotations

import pytest

from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.trainer.algorithms import ALGORITHMS


@pytest.mark.parametrize("name", ALGORITHMS)
def test_changing_to_an_algorithm_leaves_nothing_of_another_behind(name: str) -> None:
    own = Controls().overlaid(ALGORITHMS[name])
    for other in ALGORITHMS.values():
        assert Controls().overlaid(other).overlaid(ALGORITHMS[name]) == own


def test_algorithms_are_what_their_papers_say() -> None:
    controls = {name: Controls().overlaid(overrides) for name, overrides in ALGORITHMS.items()}
    bounds = {
        name: tuple(round(1 - each.clip_low, 6) if i == 0 else round(1 + each.clip_high, 6) for i in range(2))
        for name, each in controls.items()
    }
    assert bounds == {
        "grpo": (0.8, 1.2),
        "dapo": (0.8, 1.28),
        "dr_grpo": (0.8, 1.2),
        "gspo": (0.9997, 1.0004),
        "cispo": (0.0, 5.0),
        "reinforce": (0.8, 1.2),
    }
    assert {name: (each.objective, each.aggregation, each.advantage) for name, each in controls.items()} == {
        "grpo": ("ppo", "sequence_mean", "group_std"),
        "dapo": ("ppo", "token_mean", "group_std"),
        "dr_grpo": ("ppo", "fixed_length", "group_mean"),
        "gspo": ("gspo", "sequence_mean", "group_std"),
        "cispo": ("cispo", "token_mean", "group_std"),
        "reinforce": ("reinforce", "token_mean", "group_mean"),
    }
    assert [name for name, each in controls.items() if each.dynamic_sampling and each.overlong_penalty] == ["dapo"]
    assert ClipBounds.nominal(controls["cispo"]).low == -float("inf")
