"""verl's rollout correction as our importance controls. The driver reads it anew for every batch of rollouts."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from trimtab.hooks.bounds import band_shown, band_told
from trimtab.hooks.controls import Controls, Liveness
from trimtab.hooks.knobs import Knob, restart

_SMALL = 1e-10
"""A lower bound must be above 0 there."""
_NAMES = ("importance", "importance_low", "importance_high", "importance_level")


class Correction:
    """`algorithm.rollout_correction`: `rollout_is` is the level or null, `rollout_is_threshold` is one bound that
    truncates or "LOW_HIGH", between which the ratio is kept and outside of which the weight is 0.

    Args:
        config: it, or None where the run has none.
    """

    def __init__(self, config: Any) -> None:
        self._config = config
        self.bypass = bool(config is not None and config.get("bypass_mode", False))
        # What the run is without an override, and put back exactly so.
        self._own = None if config is None else (config.get("rollout_is"), config.get("rollout_is_threshold"))
        level, low, high = None, None, 2.0
        if self._own is not None:
            level, (low, high) = self._own[0], _parsed(self._own[1])
        self._first = {
            "importance": "none" if level is None else "tis" if low is None else "mis",
            "importance_low": low or 0.0,
            "importance_high": high,
            "importance_level": level or "token",
        }
        self.values: dict[str, Any] = dict(self._first)

    def knobs(self, *, recorded: bool) -> dict[str, Knob]:
        """By our control's name; `recorded` says whether the sampler's log-probs are.

        A run that does not record them, or has no correction to change, has to start with them.
        """
        rest: dict[str, Any] = {"liveness": Liveness.NEXT_ROLLOUT}
        if self.bypass:
            rest = restart("in bypass mode the ratio is against the sampler, and is clipped instead")
        elif not recorded:
            rest = restart("start with actor_rollout_ref.rollout.calculate_log_probs=true")
        elif self._config is None:
            rest = restart("start with algorithm.rollout_correction, whose rollout_is may be null")
        return {name: self._knob(name, **rest) for name in _NAMES}

    def _knob(self, name: str, **rest: Any) -> Knob:
        if name == "importance_high":
            rest |= {"shown": band_shown, "told": band_told}
        return Knob(get=lambda: self.values[name], put=lambda value: self._put(name, value), **rest)

    def _put(self, name: str, value: Any) -> None:
        if name == "importance_level" and value == "geometric":
            raise ValueError("geometric: verl weights by token or by the sequence's product")
        if name == "importance_low" and value > 0 and self.values["importance"] == "tis":
            raise ValueError("verl truncates from above only; a lower bound needs importance mis")
        self.values[name] = value
        # A change of the band alone is written when the rule is on, so order does not matter.
        level, threshold = self._own if self.values == self._first and self._own else self._wanted()
        with _opened(self._config):
            self._config["rollout_is"], self._config["rollout_is_threshold"] = level, threshold

    def _wanted(self) -> tuple[str | None, float | str]:
        low, high = self.values["importance_low"], self.values["importance_high"]
        level = None if self.values["importance"] == "none" else self.values["importance_level"]
        if self.values["importance"] == "mis":
            return level, f"{max(low, _SMALL)!r}_{high!r}"
        return level, float(high)


def _parsed(threshold: Any) -> tuple[float | None, float]:
    """Lower bound, or None where it truncates, and upper bound."""
    if threshold is None:
        return None, Controls().importance_high
    bounds = [float(bound) for bound in str(threshold).split("_")]
    return (None, bounds[0]) if len(bounds) == 1 else (min(bounds), max(bounds))


def _opened(config: Any) -> Any:
    """OmegaConf takes no keys that are not there, but inside this."""
    if not hasattr(config, "_set_flag"):
        return nullcontext()
    from omegaconf import open_dict

    return open_dict(config)
