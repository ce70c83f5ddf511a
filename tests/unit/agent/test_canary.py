"""What counts as harm after a change of the controls."""

import math

import numpy as np
import pytest

from trimtab.agent.canary import Canary, Effect, Undo, Values, judged


def watched(before: Values, after: Values, name: str = "reward_mean", **fields: object) -> Canary:
    canary = Canary(generation=1, issuer="agent", undo=Undo(), before={name: before}, after={name: after}, since=0)
    return Canary(**{field: getattr(canary, field) for field in canary.__slots__} | fields)  # type: ignore[attr-defined]


def around(level: float, n: int = 20, seed: int = 0, spread: float = 0.03) -> Values:
    return tuple(np.random.default_rng(seed).normal(level, spread, n).tolist())


@pytest.mark.parametrize(
    ("name", "before", "after", "effect"),
    [
        ("reward_mean", around(0.8), around(0.4, seed=1), Effect.HARMED),
        ("reward_mean", around(0.4), around(0.8, seed=1), Effect.UNHARMED),
        ("reward_mean", around(0.8), around(0.8, seed=1), Effect.UNHARMED),
        # Clearly lower, and by less than matters.
        ("reward_mean", around(0.8, spread=0.001), around(0.75, seed=1, spread=0.001), Effect.UNHARMED),
        # Binary rewards of few responses: ties everywhere.
        ("reward_mean", (0.75, 1.0) * 10, (0.25, 0.5) * 10, Effect.HARMED),
        ("garbage_fraction", around(0.0, spread=0.001), around(0.2, seed=1), Effect.HARMED),
        ("garbage_fraction", around(0.2), around(0.0, seed=1, spread=0.001), Effect.UNHARMED),
        # Negative rewards count by size.
        ("reward_mean", around(-1.0), around(-2.0, seed=1), Effect.HARMED),
    ],
)
def test_harm_is_a_difference_that_matters_and_is_no_chance(
    name: str, before: Values, after: Values, effect: Effect
) -> None:
    assert judged(watched(before, after, name)).effect is effect


def test_a_dip_that_is_on_its_way_back_is_no_harm() -> None:
    dip = (*around(0.3, 10), *around(0.55, 10, seed=1))
    assert judged(watched(around(0.75), dip)).effect is Effect.UNHARMED
    stays = (*around(0.3, 10), *around(0.3, 10, seed=1))
    assert judged(watched(around(0.75), stays)).effect is Effect.HARMED


def test_a_fall_that_began_before_the_change_is_not_the_changes() -> None:
    assert judged(watched(around(0.75), around(0.2), harmed_before=True)).effect is Effect.UNHARMED
    assert judged(watched(around(0.75), around(0.2), broken_before=True, broken=3)).effect is Effect.UNHARMED
    assert judged(watched(around(0.75), around(0.2), harmed_before=True, broken=3)).effect is Effect.HARMED


def test_one_step_that_is_not_finite_is_harm() -> None:
    judgement = judged(watched(around(0.8), around(0.8), broken=1))
    assert (judgement.effect, judgement.evidence) == (Effect.HARMED, {"broken_steps": 1.0})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (around(0.8, 4), around(0.2)),
        (around(0.8), around(0.2, 9)),
        ((None,) * 20, around(0.2)),
        (around(0.8), (math.nan,) * 20),
        (around(0.8), (None, 0.1) * 8),
        ((), ()),
    ],
)
def test_too_few_finite_values_say_nothing(before: Values, after: Values) -> None:
    assert judged(watched(before, after)).effect is Effect.INCONCLUSIVE


def test_one_metric_is_enough_where_the_other_is_not_reported() -> None:
    canary = watched(around(0.8), around(0.2, 19))
    canary = canary.grown({"reward_mean": 0.2, "garbage_fraction": None}, broken=False)
    assert judged(canary).effect is Effect.HARMED


def test_changes_without_effect_are_hardly_ever_called_harmful() -> None:
    rng = np.random.default_rng(5)
    called = 0
    for _ in range(2000):
        rewards = rng.binomial(64, 0.5, 40) / 64
        called += judged(watched(tuple(rewards[:20]), tuple(rewards[20:]))).effect is Effect.HARMED
    assert called <= 4
