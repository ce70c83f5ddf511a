"""Each remedy: what it offers, and when it is out."""

import math
from dataclasses import replace

import pytest
from agent_runs import CAPABLE

from trimtab.agent.control_limits import ControlLimit, ControlLimits
from trimtab.agent.ladders import BACKWARD, DRIFT, OVERREACH, PRECISION, ladder_against
from trimtab.agent.remedies import REMEDIES
from trimtab.agent.remedy import Refusal, Situation
from trimtab.hooks.controls import CONTROL_NAMES, Capabilities, Controls, ControlValue, Liveness

ABLE = replace(
    CAPABLE,
    controls=dict.fromkeys(CONTROL_NAMES, Liveness.LIVE),
    sampler_formats=("nvfp4", "fp8-row", "bf16"),
    train_formats=("nvfp4", "nvfp4-46", "fp8-row", "bf16"),
    checkpoints=("1:10", "1:20"),
)


def situation(capabilities: Capabilities = ABLE, **applied: ControlValue) -> Situation:
    controls = Controls(**({"ratio_reference": "sampler"} | applied))  # type: ignore[arg-type]
    return Situation(applied=controls, capabilities=capabilities, staleness=4.0, checkpoint="1:10")


OFFERS = [
    ("score_centering", {}, {"ratio_reference": "recomputed", "centering": True}),
    ("score_centering", {"objective": "reinforce"}, {"centering": True}),
    ("recomputed_ratio", {}, {"ratio_reference": "recomputed"}),
    ("calibrated_clipping", {}, {"clip_mode": "calibrated"}),
    ("truncated_importance", {}, {"ratio_reference": "recomputed", "importance": "tis"}),
    ("truncated_importance", {"objective": "reinforce"}, {"importance": "tis"}),
    ("masked_importance", {}, {"ratio_reference": "recomputed", "importance": "mis"}),
    ("masked_importance", {"objective": "reinforce"}, {"importance": "mis"}),
    ("fresher_rollouts", {}, {"max_staleness": 2.0}),
    ("smaller_steps", {"lr_scale": 0.5}, {"lr_scale": 0.25}),
    ("dequantised_backward", {"backward": "quantized"}, {"backward": "dequantized"}),
    ("four_over_six", {"train_format": "nvfp4"}, {"train_format": "nvfp4-46"}),
    ("bf16_last_layers", {}, {"bf16_last": 0.15}),
    ("tighter_clip", {"clip_low": 1.0, "clip_high": 10.0}, {"clip_low": 0.2, "clip_high": 0.28}),
    ("tighter_clip", {"clip_low": 0.1, "clip_high": 1.0}, {"clip_low": 0.1, "clip_high": 0.28}),
    ("sampler_precision", {"sampler_format": "nvfp4"}, {"sampler_format": "fp8-row"}),
    ("sampler_precision", {"sampler_format": "fp8-row"}, {"sampler_format": "bf16"}),
    ("trainer_precision", {"train_format": "nvfp4-46"}, {"train_format": "fp8-row"}),
    ("restore_checkpoint", {}, {"restore": "1:10"}),
    ("pause", {}, {"paused": True}),
]


@pytest.mark.parametrize(("name", "applied", "offer"), OFFERS)
def test_what_a_remedy_offers(name: str, applied: dict[str, ControlValue], offer: dict[str, ControlValue]) -> None:
    assert REMEDIES[name](situation(**applied)) == offer


@pytest.mark.parametrize(("name", "applied", "offer"), OFFERS)
def test_what_is_in_effect_is_not_offered_again(
    name: str, applied: dict[str, ControlValue], offer: dict[str, ControlValue]
) -> None:
    again = REMEDIES[name](situation(**(applied | offer)))
    assert isinstance(again, Refusal) or again != offer


@pytest.mark.parametrize("name", REMEDIES)
def test_a_trainer_without_controls_is_offered_nothing(name: str) -> None:
    outcome = REMEDIES[name](replace(situation(Capabilities(controls={})), staleness=None, checkpoint=""))
    assert isinstance(outcome, Refusal)
    assert outcome.reason


def test_fresh_rollouts_cannot_be_fresher() -> None:
    for staleness in (None, 0.0, 0.9):
        assert isinstance(REMEDIES["fresher_rollouts"](replace(situation(), staleness=staleness)), Refusal)


def test_a_format_that_the_sampler_cannot_take_is_passed_over() -> None:
    able = replace(ABLE, sampler_formats=("nvfp4", "bf16"))
    assert REMEDIES["sampler_precision"](situation(able, sampler_format="nvfp4")) == {"sampler_format": "bf16"}


@pytest.mark.parametrize("highest", ["bf16", "fp32"])
def test_no_format_is_above_the_highest(highest: str) -> None:
    sampled = REMEDIES["sampler_precision"](situation(sampler_format=highest))
    assert sampled == Refusal(reason=f"sampler_format: {highest!r} is the highest already")
    trained = REMEDIES["trainer_precision"](situation(train_format=highest))
    assert trained == Refusal(reason=f"train_format: {highest!r} is the highest already")


def test_every_remedy_stands_on_a_ladder_and_every_rung_is_a_remedy() -> None:
    assert {*PRECISION, *DRIFT, *BACKWARD, *OVERREACH} == set(REMEDIES)


@pytest.mark.parametrize(
    ("applied", "gradients", "ladder"),
    [
        ({"ratio_reference": "sampler"}, False, PRECISION),
        ({"ratio_reference": "recomputed"}, False, DRIFT),
        ({"ratio_reference": "sampler", "objective": "reinforce"}, False, DRIFT),
        ({"ratio_reference": "sampler"}, True, BACKWARD),
    ],
)
def test_the_ladder_is_the_controls(applied: dict[str, str], gradients: bool, ladder: tuple[str, ...]) -> None:
    assert ladder_against(Controls(**applied), gradients=gradients) == ladder  # type: ignore[arg-type]


def test_limits_bound_the_move_and_the_value() -> None:
    limits = ControlLimits(lr_scale=ControlLimit(low=0.2, high=1.0, move=0.25))
    assert limits.bounded({"lr_scale": 0.5}, Controls()) == {"lr_scale": 0.75}
    assert limits.bounded({"lr_scale": 0.1}, Controls(lr_scale=0.21)) == {"lr_scale": 0.2}
    refusal = limits.bounded({"lr_scale": 0.1}, Controls(lr_scale=0.2))
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "lr_scale: 0.2 is at the limit of the job's settings"
    assert limits.bounded({"centering": True}, Controls()) == {"centering": True}


def test_what_is_untouched_stays_so() -> None:
    refusal = ControlLimits(untouched=("centering",)).bounded({"centering": True}, Controls())
    assert isinstance(refusal, Refusal)
    assert refusal.reason.startswith("centering: ")


def test_a_value_beyond_the_limits_that_the_run_set_itself_is_not_pulled_back() -> None:
    refusal = ControlLimits().bounded({"lr_scale": 0.025}, Controls(lr_scale=0.05))
    assert isinstance(refusal, Refusal)
    assert ControlLimits().bounded({"lr_scale": 5.0}, Controls(lr_scale=10.0)) == {"lr_scale": 5.0}


def test_a_control_at_zero_can_move_at_all() -> None:
    assert ControlLimits().bounded({"bf16_last": 0.15}, Controls()) == {"bf16_last": 0.15}


def test_an_age_without_end_is_no_age_to_halve() -> None:
    assert isinstance(REMEDIES["fresher_rollouts"](replace(situation(), staleness=math.inf)), Refusal)


def test_updates_that_nothing_holds_are_held_first() -> None:
    assert ladder_against(Controls(ratio_reference="sampler"), overreach=True) == OVERREACH


def test_small_noise_that_lasts_is_weighted_first() -> None:
    assert ladder_against(Controls(ratio_reference="sampler"), mild=True) == DRIFT
