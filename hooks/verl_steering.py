"""What the driver of a verl job can change: the actor's bounds, which travel with each batch, and the correction."""

from __future__ import annotations

import json
from typing import Any

from trimtab.hooks.bounds import LARGE, dual_shown, lower_width
from trimtab.hooks.knobs import Knob, Panel, restart
from trimtab.hooks.verl_correction import Correction


class Steering:
    """The driver's side of one trainer: what the actor's configuration is to be, and the correction's.

    Args:
        trainer: a `PPOTrainer` of verl, with its `config` and `actor_rollout_wg`.
    """

    def __init__(self, trainer: Any) -> None:
        actor = trainer.config.actor_rollout_ref.actor
        clip = actor.clip_ratio
        self.own: dict[str, Any] = {
            "clip_low": clip if actor.clip_ratio_low is None else actor.clip_ratio_low,
            "clip_high": clip if actor.clip_ratio_high is None else actor.clip_ratio_high,
            "dual_clip": actor.get("clip_ratio_c", 3.0),
            "kl_coef": actor.get("kl_loss_coef", 0.0),
        }
        self.wanted = dict(self.own)
        self.uses_kl = bool(actor.get("use_kl_loss", False))
        algorithm = trainer.config.algorithm
        self.correction = Correction(algorithm.get("rollout_correction", None))
        self.bypass = self.correction.bypass
        self.records = bool(trainer.config.actor_rollout_ref.rollout.get("calculate_log_probs", False))

    def metadata(self) -> str:
        """What the batch is to carry: the changes, which may be none. A batch without it is not measured."""
        changed = {name: value for name, value in self.wanted.items() if value != self.own[name]}
        # JSON has no infinity.
        return json.dumps({name: min(float(value), LARGE) for name, value in changed.items()})

    def panel(self) -> Panel:
        """All of it as knobs."""
        knobs = {
            "clip_low": self._knob("clip_low", shown=lower_width),
            "clip_high": self._knob("clip_high"),
            "dual_clip": self._knob("dual_clip", shown=dual_shown),
            "ratio_reference": Knob.obeyed(
                "sampler" if self.bypass else "recomputed",
                **restart("set algorithm.rollout_correction.bypass_mode, which changes what old log-probs are"),
            ),
        }
        kl = {} if self.uses_kl else restart("start with actor.use_kl_loss=true, which loads a reference")
        knobs["kl_coef"] = self._knob("kl_coef", shown=lambda coef: coef if self.uses_kl else 0.0, **kl)
        return Panel(knobs | self.correction.knobs(recorded=self.records))

    def _knob(self, name: str, **rest: Any) -> Knob:
        return Knob(get=lambda: self.wanted[name], put=lambda value: self.wanted.update({name: value}), **rest)
