"""Controls, the overrides laid over them, and what a trainer can do."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest

from trimtab.hooks.controls import (
    CHECKPOINTS,
    CHOICES,
    CONTROL_NAMES,
    FORMATS,
    NUMERIC_BOUNDS,
    SWITCHES,
    Capabilities,
    ClipBounds,
    ControlError,
    Controls,
    Liveness,
    check_value,
)

EVERYTHING = Capabilities(
    controls=dict.fromkeys(CONTROL_NAMES, Liveness.LIVE),
    rollout_logprobs=True,
    sampler_head=8,
    shadow=True,
    sampler_formats=("bf16", "nvfp4"),
    train_formats=("bf16",),
    checkpoints=("3:40",),
)


def test_every_control_has_a_rule_and_its_default_keeps_it() -> None:
    ruled = {*NUMERIC_BOUNDS, *CHOICES, *SWITCHES, *FORMATS, *CHECKPOINTS}
    assert SWITCHES == ("dynamic_sampling", "centering", "paused")
    assert CHOICES["clip_mode"] == ("nominal", "calibrated")
    assert ruled == set(CONTROL_NAMES) == {field.name for field in fields(Controls)}
    for name in CONTROL_NAMES:
        check_value(name, getattr(Controls(), name))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("clip_low", 0.0),
        ("clip_low", 1.0),
        ("clip_low", 1),
        ("clip_high", 100.0),
        ("importance_high", math.inf),
        ("lr_scale", 0.0),
        ("ratio_reference", "sampler"),
        ("clip_mode", "calibrated"),
        ("importance", "mis"),
        ("centering", False),
        ("sampler_format", "anything"),
        ("dual_clip", math.inf),
        ("dynamic_sampling", True),
        ("kv_format", "fp8"),
        ("restore", "3:40"),
        ("restore", ""),
        ("pin", "3:40"),
        ("pin", ""),
        ("paused", True),
        ("bf16_last", 0.0),
        ("bf16_last", 1.0),
        ("max_staleness", 0.0),
        ("max_staleness", math.inf),
    ],
)
def test_values_at_the_edge_are_taken(name: str, value: Any) -> None:
    assert getattr(Controls().overlaid({name: value}), name) == value


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("clip_low", 1.0000001, "clip_low: 1.0000001 is not a number in [0, 1]"),
        ("clip_low", -0.1, "clip_low: -0.1 is not a number in [0, 1]"),
        ("clip_low", math.nan, "clip_low: nan is not a number in [0, 1]"),
        ("clip_low", True, "clip_low: True is not a number in [0, 1]"),
        ("clip_low", "0.1", "clip_low: '0.1' is not a number in [0, 1]"),
        ("clip_high", math.inf, "clip_high: inf is not a number in [0, 100]"),
        ("importance_high", 0.5, "importance_high: 0.5 is not a number in [1, inf]"),
        ("centering", 1, "centering: 1 is not true or false"),
        ("clip_mode", "auto", "clip_mode: 'auto' is none of nominal, calibrated"),
        ("importance", None, "importance: None is none of none, tis, mis"),
        ("train_format", "", "train_format: '' is not the name of a number format"),
        ("train_format", 8, "train_format: 8 is not the name of a number format"),
        ("dual_clip", 0.9, "dual_clip: 0.9 is not a number in [1, inf]"),
        ("dynamic_sampling", "yes", "dynamic_sampling: 'yes' is not true or false"),
        ("restore", "40", "restore: '40' is no checkpoint; give ATTEMPT:STEP, such as 1:40"),
        ("restore", 40, "restore: 40 is no checkpoint; give ATTEMPT:STEP, such as 1:40"),
        ("pin", "40", "pin: '40' is no checkpoint; give ATTEMPT:STEP, such as 1:40"),
        ("paused", 1, "paused: 1 is not true or false"),
        ("paused", 0, "paused: 0 is not true or false"),  # equals what it is by default
        ("lr_scale", True, "lr_scale: True is not a number in [0, 10]"),
        ("kl_coef", False, "kl_coef: False is not a number in [0, 10]"),
        ("bf16_last", 1.01, "bf16_last: 1.01 is not a number in [0, 1]"),
        ("max_staleness", -1, "max_staleness: -1 is not a number in [0, inf]"),
        ("learning_rate", 1.0, f"learning_rate: no such control; the controls are {', '.join(CONTROL_NAMES)}"),
    ],
)
def test_what_a_control_cannot_be_is_named(name: str, value: Any, message: str) -> None:
    with pytest.raises(ControlError) as overlaid:
        Controls().overlaid({name: value})
    assert str(overlaid.value) == message
    if name in CONTROL_NAMES:
        with pytest.raises(ControlError) as made:
            Controls(**{name: value})
        assert str(made.value) == message


def test_overrides_touch_nothing_else() -> None:
    own = Controls(clip_low=0.3, sampler_format="nvfp4")
    assert own.overlaid({"centering": True}) == Controls(clip_low=0.3, sampler_format="nvfp4", centering=True)
    assert own.overlaid({}) is own


@pytest.mark.parametrize(
    ("controls", "low", "high"),
    [
        (Controls(), math.log(0.8), math.log(1.2)),
        (Controls(clip_low=1.0, clip_high=0.28), -math.inf, math.log(1.28)),
        (Controls(clip_low=0.0, clip_high=0.0), 0.0, 0.0),
    ],
)
def test_nominal_bounds_are_logarithms(controls: Controls, low: float, high: float) -> None:
    bounds = ClipBounds.nominal(controls)
    assert (bounds.low, bounds.high) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize(
    ("change", "name", "value", "refusal"),
    [
        ({"controls": {}}, "clip_low", 0.1, "clip_low: absent in this trainer"),
        ({"controls": {"clip_low": Liveness.RESTART}}, "clip_low", 0.1, "clip_low: restart in this trainer"),
        ({"controls": {"clip_low": Liveness.NEXT_ROLLOUT}}, "clip_low", 0.1, None),
        ({"sampler_head": 0}, "centering", True, "centering: the rollouts record no sampler head"),
        ({"sampler_head": 0}, "centering", False, None),
        ({"sampler_head": 0, "controls": {}}, "centering", True, "centering: the rollouts record no sampler head"),
        ({"controls": {}}, "centering", True, "centering: absent in this trainer"),
        ({"rollout_logprobs": False}, "importance", "tis", "importance: the rollouts record no sampler log-probs"),
        ({"rollout_logprobs": False}, "importance", "none", None),
        ({"shadow": False}, "clip_mode", "calibrated", "clip_mode: calibrated bounds need the BF16 twin"),
        ({"shadow": False}, "clip_mode", "nominal", None),
        ({}, "sampler_format", "nvfp4", None),
        ({}, "sampler_format", "fp8", "sampler_format: 'fp8' is none of bf16, nvfp4"),
        ({"train_formats": ()}, "train_format", "bf16", "train_format: 'bf16' is none of no format"),
        ({}, "restore", "3:40", None),
        ({}, "restore", "", None),
        ({}, "restore", "3:50", "restore: there is no checkpoint '3:50'; there are 3:40"),
        ({}, "pin", "3:40", None),
        ({}, "pin", "3:50", "pin: there is no checkpoint '3:50'; there are 3:40"),
        ({"checkpoints": ()}, "restore", "3:40", "restore: there is no checkpoint '3:40'; there are none"),
    ],
)
def test_what_a_trainer_cannot_do_is_refused(
    change: dict[str, Any], name: str, value: Any, refusal: str | None
) -> None:
    given = {field.name: getattr(EVERYTHING, field.name) for field in fields(Capabilities)} | change
    said = Capabilities(**given).refusal(name, value)
    assert said is None if refusal is None else said is not None and said.startswith(refusal)


def test_impossible_capabilities_are_refused() -> None:
    with pytest.raises(ControlError, match=r"controls\.speed: no such control"):
        Capabilities(controls={"speed": Liveness.LIVE})
    with pytest.raises(ControlError, match="sampler_head: -1 is negative"):
        Capabilities(controls={}, sampler_head=-1)


@pytest.mark.parametrize(
    ("low", "high"),
    [(math.nan, math.nan), (-0.2, math.nan), (math.nan, 0.2), (0.3, 0.2), (math.inf, math.inf), (-math.inf, -math.inf)],
)
def test_bounds_that_bound_nothing_are_refused(low: float, high: float) -> None:
    with pytest.raises(ControlError, match=r"^clip_bounds: low = .* bound nothing"):
        ClipBounds(low=low, high=high)


@pytest.mark.parametrize(("low", "high"), [(-math.inf, math.inf), (-0.2, 0.2), (0.1, 0.1)])
def test_a_side_of_the_bounds_may_be_open(low: float, high: float) -> None:
    assert (ClipBounds(low=low, high=high).low, ClipBounds(low=low, high=high).high) == (low, high)


@pytest.mark.parametrize(
    ("controls", "names"),
    [
        (Controls(centering=True), None),
        (Controls(objective="gspo"), None),
        (Controls(centering=True, objective="gspo"), ("centering", "objective")),
        (Controls(clip_mode="calibrated", objective="gspo"), ("clip_mode", "objective")),
        (Controls(centering=True, importance_level="sequence"), None),
        (
            Controls(centering=True, importance="tis", importance_level="geometric"),
            ("centering", "importance_level", "importance"),
        ),
        (Controls(importance="tis", ratio_reference="sampler"), ("importance", "ratio_reference", "objective")),
        (
            Controls(importance="mis", ratio_reference="sampler", objective="cispo"),
            ("importance", "ratio_reference", "objective"),
        ),
        (Controls(importance="tis"), None),
        (Controls(importance="tis", ratio_reference="sampler", objective="reinforce"), None),
    ],
)
def test_controls_that_contradict_each_other_are_named(controls: Controls, names: tuple[str, ...] | None) -> None:
    conflict = controls.conflict()
    assert (conflict and conflict[0]) == names
