"""What can happen to a drawn run, each by its size and by how it comes: at once, or over a number of steps."""

from __future__ import annotations

import math
from dataclasses import replace

from trimtab.api.backtest.conditions import Conditions, Fault


def grown(age: int, over: int) -> float:
    """Share of its size that something has reached `age` steps after its onset, when it grows over `over` steps."""
    return min(1.0, (age + 1) / over) if over else 1.0


def nothing(conditions: Conditions, age: int) -> Conditions:  # noqa: ARG001
    """Nothing happens."""
    return conditions


def tail(size: float, over: int = 0) -> Fault:
    """The lowest 5 % of the log-ratios of punished tokens fall by `size` nats."""
    return lambda at, age: replace(at, tail=-size * grown(age, over))


def bulk(negative: float, positive: float = 0.0, over: int = 0) -> Fault:
    """All log-ratios of a sign move by so many nats."""
    return lambda at, age: replace(at, negative=negative * grown(age, over), positive=positive * grown(age, over))


def entropy(factor: float, over: int) -> Fault:
    """The entropy goes to `factor` times what it was, in a straight line."""
    return lambda at, age: replace(at, entropy=at.entropy * (1 + (factor - 1) * grown(age, over)))


def reward(success: float, over: int) -> Fault:
    """The share of right answers goes to `success`, in a straight line."""
    return lambda at, age: replace(at, success=at.success + (success - at.success) * grown(age, over))


def learning(success: float, entropy: float, over: int) -> Fault:
    """The policy gets better, and surer with it: to `success`, and to `entropy` times the entropy that it had."""

    def happens(at: Conditions, age: int) -> Conditions:
        share = grown(age, over)
        return replace(
            at,
            success=at.success + (success - at.success) * share,
            entropy=at.entropy * (1 + (entropy - 1) * share),
        )

    return happens


def bursts(heavy: float, lasts: int, every: int) -> Fault:
    """Every so often, the tails of both signs are heavy for a few steps."""
    return lambda at, age: replace(at, heavy=heavy) if age % every < lasts else at


def garbage_batches(every: int) -> Fault:
    """Every so often a single batch is garbage: wild ratios, half of the responses unreadable, hardly any right."""

    def happens(at: Conditions, age: int) -> Conditions:
        if age % every:
            return at
        return replace(at, scale=6 * at.scale, success=0.02, entropy=2 * at.entropy, garbage=0.5, gradient=3.0)

    return happens


def longer_answers(length: float, longer: float, over: int) -> Fault:
    """Responses grow, wrong ones more than right ones."""
    return lambda at, age: replace(
        at, length=at.length + (length - at.length) * grown(age, over), longer=longer * grown(age, over)
    )


def resume(back: int, transient: float) -> Fault:
    """The run starts again as a new attempt, `back` steps before, and its ratios are wider for some ten steps."""

    def happens(at: Conditions, age: int) -> Conditions:
        excess = transient * math.exp(-age / 5)
        return replace(
            at,
            attempt=at.attempt + 1,
            step=max(at.step - back, age),
            scale=at.scale * (1 + excess),
            gradient=at.gradient * (1 + 2 * excess),
        )

    return happens


def poison(name: str, value: float) -> Fault:
    """In one step, one value of a tensor or a scalar is not finite."""
    return lambda at, age: at if age else replace(at, poison=(name, value))
