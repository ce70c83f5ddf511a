"""Score centering on recomputed ratios.

Centering (arXiv 2609.20807) subtracts from each token's score its expectation under the sampler, so what the
sampler's noise does to the gradient has mean zero. On ratios against the sampler's log-probs most of the gain is lost
to the clip, so the remedy brings recomputed ratios with it. Measured on a small GRPO run that collapses under NVFP4
rollouts: switched on at step 8, last rewards .959 +- .004 against .099 +- .019 (5 seeds); at step 25, .962 +- .013,
one seed of three already collapsed; on the sampler's ratio at step 25 only .540 +- .380. The mismatch itself stays,
so the remedy is held as long as its cause lasts.

Without a ratio (REINFORCE) centering stands alone, and on the cliff does as well: .961 +- .004.

Costs one forward pass a rollout, and the sampler must record a head of log-probs.
"""

from __future__ import annotations

from trimtab.agent.remedy import Refusal, Situation, offered_on_recomputed_ratio
from trimtab.hooks.controls import ControlValue


def propose(situation: Situation) -> dict[str, ControlValue] | Refusal:
    """Centering, with the ratio against recomputed log-probs; alone where there is no ratio."""
    return offered_on_recomputed_ratio({"centering": True}, situation)
