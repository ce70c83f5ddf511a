"""Which commands a trainer accepts, and what of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.hooks.controls import Capabilities, Controls, Liveness
from trimtab.hooks.fence import Accepted, fenced, settled
from trimtab.hooks.records import Command

CAN = Capabilities(
    controls={"clip_low": Liveness.LIVE, "centering": Liveness.LIVE, "train_format": Liveness.RESTART},
    sampler_head=4,
)

WEIGHTS_NOTHING = (
    "importance: 'tis' would weight nothing, since the ratio is against the sampler already; set ratio_reference to "
    "recomputed, or importance to none"
)


def command(generation: int, overrides: dict[str, Any] | None = None, job: str = "run", attempt: int = 5) -> Command:
    return Command(
        job=job, attempt=attempt, generation=generation, overrides=overrides or {}, reason="test", issuer="agent"
    )


def after(*commands: Command | None) -> Accepted:
    current = Accepted()
    for one in commands:
        current = fenced(one, job="run", attempt=5, current=current, capabilities=CAN) or current
    return current


@pytest.mark.parametrize(
    "ignored",
    [
        None,
        command(9, {"clip_low": 0.1}, job="other"),
        command(9, {"clip_low": 0.1}, attempt=4),
        command(9, {"clip_low": 0.1}, attempt=6),
        command(2, {"clip_low": 0.1}),
        command(3, {"clip_low": 0.1}),
    ],
)
def test_what_is_not_meant_for_this_process_or_not_newer_changes_nothing(ignored: Command | None) -> None:
    current = after(command(3, {"clip_low": 0.3}))
    assert fenced(ignored, job="run", attempt=5, current=current, capabilities=CAN) is None


def test_a_command_replaces_all_overrides() -> None:
    accepted = after(command(1, {"clip_low": 0.3, "centering": True}), command(2, {"clip_low": 0.1}))
    assert accepted == Accepted(generation=2, overrides={"clip_low": 0.1})


@pytest.mark.parametrize(
    ("name", "value", "refusal"),
    [
        ("clip_low", 7.0, "clip_low: 7.0 is not a number in [0, 1]"),
        ("clip_low", "Infinity", "clip_low: 'Infinity' is not a number in [0, 1]"),
        ("clip_low", float("nan"), "clip_low: nan is not a number in [0, 1]"),
        ("clip_low", True, "clip_low: True is not a number in [0, 1]"),
        ("learning_rate", 1.0, "learning_rate: no such control"),
        ("train_format", "fp8", "train_format: restart in this trainer"),
        ("lr_scale", 0.5, "lr_scale: absent in this trainer"),
    ],
)
def test_a_refused_override_is_left_out_alone_and_named(name: str, value: Any, refusal: str) -> None:
    accepted = after(command(4, {name: value, "centering": True}))
    assert (accepted.generation, accepted.overrides) == (4, {"centering": True})
    assert len(accepted.refusals) == 1
    assert accepted.refusals[0].startswith(refusal)


@given(st.lists(st.builds(command, st.integers(1, 20), st.just({"clip_low": 0.1}) | st.just({}))))
def test_generations_never_go_back(commands: list[Command]) -> None:
    current, highest = Accepted(), 0
    for one in commands:
        current = fenced(one, job="run", attempt=5, current=current, capabilities=CAN) or current
        highest = max(highest, one.generation)
        assert current.generation == highest
    assert all(after(*commands, one) == current for one in commands)


@pytest.mark.parametrize(
    ("base", "overrides", "left", "refusals"),
    [
        (Controls(), {"centering": True}, {"centering": True}, ()),
        (
            Controls(objective="gspo"),
            {"centering": True, "clip_low": 0.1},
            {"clip_low": 0.1},
            ("centering: needs a weight for each token, and gspo has one a sequence",),
        ),
        (
            Controls(centering=True),
            {"objective": "gspo"},
            {},
            ("objective: 'gspo' does not go: centering: needs a weight for each token, and gspo has one a sequence",),
        ),
        (Controls(centering=True, objective="gspo"), {"clip_low": 0.1}, {"clip_low": 0.1}, ()),
        (Controls(ratio_reference="sampler"), {"importance": "tis"}, {}, (WEIGHTS_NOTHING,)),
        (
            Controls(ratio_reference="sampler"),
            {"importance": "tis", "ratio_reference": "recomputed"},
            {"importance": "tis", "ratio_reference": "recomputed"},
            (),
        ),
        (
            Controls(importance="tis"),
            {"ratio_reference": "sampler"},
            {},
            (f"ratio_reference: 'sampler' does not go: {WEIGHTS_NOTHING}",),
        ),
        (
            Controls(importance="tis", ratio_reference="sampler", objective="reinforce"),
            {"objective": "ppo"},
            {},
            (f"objective: 'ppo' does not go: {WEIGHTS_NOTHING}",),
        ),
    ],
)
def test_overrides_that_contradict_the_rest_are_left_out_and_named(
    base: Controls, overrides: dict[str, Any], left: dict[str, Any], refusals: tuple[str, ...]
) -> None:
    assert settled(base, Accepted(generation=3, overrides=overrides)) == Accepted(
        generation=3, overrides=left, refusals=refusals
    )
