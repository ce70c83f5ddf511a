"""Each token's gradient weighted by trainer / sampler, cut off at the run's own upper bound (truncated importance
sampling).

For runs whose score nothing corrects: REINFORCE, or a ratio against recomputed log-probs. Measured where the edge of
stability of REINFORCE moves under FP8 and E5M2 rollouts: .98 to .99 when switched on at step 40 or after the fall to
.40, where centering alone ended at .51 to .56; two versions stale with a recomputed ratio, .865 +- .109, and .957 +-
.028 with centering. On the cliff it saves the trained policy (.995 in BF16) and lets the mismatch grow (.827 under the
sampler), so the ratio's own remedies come first there."""

from __future__ import annotations

from trimtab.agent.remedy import Refusal, Situation, offered_on_recomputed_ratio
from trimtab.hooks.controls import ControlValue


def propose(situation: Situation) -> dict[str, ControlValue] | Refusal:
    """TIS, with a recomputed ratio where there is a ratio."""
    return offered_on_recomputed_ratio({"importance": "tis"}, situation)
