"""What a remedy would change, read off the step that asks for it before it is switched on.

The step's sketches are the distributions that a remedy acts on, so much of its effect needs no trial: how many tokens
the clip would silence, what an importance weight would cut off, how large the centering term is. It is stored as
evidence beside the proposal; what would give up too much of the batch is refused.

    clip fractions        of the BF16 twin's ratio, where the remedy takes the sampler's noise out of the ratio;
                          under the bounds that one step's sketches calibrate, where it moves the bounds
    retained              share of tokens inside the importance band (mismatch sketch)
    truncated             share above its upper end
    weight_ess            mean(w)^2 / mean(w^2) of the weights w that the remedy gives the tokens
    centering_size        reported by the trainer: mean |A| sum_v |mu(v) - rho pi(v)| over the sampler's head
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trimtab.agent.signals.ratios import importance_band
from trimtab.agent.signals.step import bounds
from trimtab.hooks.calibration import ClipCalibration
from trimtab.hooks.calibration_sample import CalibrationSample
from trimtab.hooks.controls import ClipBounds, Controls, ControlValue
from trimtab.hooks.records import StepSummary
from trimtab.hooks.sketch import MAX_LOG_RATIO, MIDDLES, Sign, Sketch

Array = NDArray[np.float64]
Foreseen = dict[str, float]

RETAINED_FLOOR = 0.5
"""Share of the batch that a remedy has to leave."""


def foreseen(overrides: dict[str, ControlValue], summary: StepSummary) -> Foreseen:
    """What is known beforehand about `overrides`, `..._now` and `..._then`; empty where nothing is."""
    applied = summary.applied
    then = applied.overlaid(overrides)
    found: Foreseen = {}
    if then.clip_mode == "calibrated" != applied.clip_mode:
        found |= _moved_bounds(summary, then)
    if then.ratio_reference == "recomputed" != applied.ratio_reference:
        found |= _noise_free_ratio(summary, then)
    if then.importance not in ("none", applied.importance):
        found |= _weighted(summary, then)
    if then.centering and not applied.centering:
        found |= {name: summary.scalars[name] for name in ("centering_size", "head_tv") if name in summary.scalars}
    if then.lr_scale != applied.lr_scale:
        found |= {"lr_scale_now": applied.lr_scale, "lr_scale_then": then.lr_scale}
    return found


def too_much(expected: Foreseen) -> str | None:
    """Why a remedy must not be switched on, by what it would do; None where nothing speaks against it."""
    retained = expected.get("retained", 1.0)
    if retained < RETAINED_FLOOR:
        return f"importance: it would leave {retained:.0%} of the tokens, below {RETAINED_FLOOR:.0%}"
    return None


def _clipped(sketch: Sketch, by: ClipBounds, when: str) -> Foreseen:
    """Shares of tokens that the bounds silence, of each sign that there is."""
    found: Foreseen = {}
    if sketch.sign(Sign.NEGATIVE).n:
        found[f"clip_fraction_negative_{when}"] = sketch.sign(Sign.NEGATIVE).fraction_below(by.low)
    if sketch.sign(Sign.POSITIVE).n:
        found[f"clip_fraction_positive_{when}"] = 1.0 - sketch.sign(Sign.POSITIVE).fraction_below(by.high)
    return found


def _now(summary: StepSummary) -> Foreseen:
    update = summary.sketches.get("update")
    return {} if update is None else _clipped(update, bounds(summary), "now")


def _moved_bounds(summary: StepSummary, then: Controls) -> Foreseen:
    update, twin = summary.sketches.get("update"), summary.sketches.get("shadow")
    if update is None or twin is None:
        return {}
    moved = ClipCalibration().observed(CalibrationSample.of_sketches(update, twin)).bounds(then)
    return _now(summary) | _clipped(update, moved, "then")


def _noise_free_ratio(summary: StepSummary, then: Controls) -> Foreseen:
    """The twin's ratio holds what training changed, as a recomputed one would."""
    twin = summary.sketches.get("shadow")
    return {} if twin is None else _now(summary) | _clipped(twin, ClipBounds.nominal(then), "then")


def _weighted(summary: StepSummary, then: Controls) -> Foreseen:
    mismatch = summary.sketches.get("mismatch")
    n = 0 if mismatch is None else mismatch.n
    if mismatch is None or not n or then.importance_level != "token":
        return {}
    low, high = importance_band(then)
    counts = np.zeros(len(MIDDLES))
    for part in mismatch.signs():
        counts[list(part.bins)] += part.counts
    ratios = np.exp(np.clip(MIDDLES, -MAX_LOG_RATIO, MAX_LOG_RATIO))
    inside = (low <= MIDDLES) & (high >= MIDDLES)
    weights = WEIGHTS[then.importance](ratios, inside, then)
    mean, square = float(counts @ weights) / n, float(counts @ weights**2) / n
    found = {"truncated": float(counts[high < MIDDLES].sum()) / n, "weight_ess": mean**2 / square if square else 0.0}
    return found | ({"retained": float(counts[inside].sum()) / n} if then.importance == "mis" else {})


def _truncated(ratios: Array, inside: NDArray[np.bool_], then: Controls) -> Array:  # noqa: ARG001
    clipped: Array = np.clip(ratios, then.importance_low, then.importance_high)
    return clipped


def _masked(ratios: Array, inside: NDArray[np.bool_], then: Controls) -> Array:
    kept: Array = np.where(inside, ratios if then.importance_inside == "ratio" else 1.0, 0.0)
    return kept


WEIGHTS: dict[str, Callable[[Array, NDArray[np.bool_], Controls], Array]] = {"tis": _truncated, "mis": _masked}
