"""The published algorithms, as overrides of the controls that tell them apart.

Each names the same controls, so that changing from one to another leaves nothing of the first behind. None turns the
KL penalty on, which needs reference weights: the first GRPO used `kl_coef` 0.04 with k3, later recipes 0.

Sources: `grpo` arXiv 2402.03300 (clip 0.2 as in TRL and verl); `dapo` 2503.14476; `dr_grpo` 2503.20783; `gspo`
2507.18071; `cispo` 2506.13585 with the cap of 5 that arXiv 2510.13786 and TRL recommend (see
`trimtab.trainer.objectives.surrogates` on the convention); `reinforce`, the base objective of arXiv 2609.20807.
"""

from __future__ import annotations

import math

from trimtab.hooks.controls import Overrides

_GRPO: Overrides = {
    "objective": "ppo",
    "aggregation": "sequence_mean",
    "advantage": "group_std",
    "dynamic_sampling": False,
    "overlong_penalty": 0.0,
    "clip_low": 0.2,
    "clip_high": 0.2,
    "dual_clip": math.inf,
}

ALGORITHMS: dict[str, Overrides] = {
    "grpo": _GRPO,
    "dapo": {
        **_GRPO,
        "aggregation": "token_mean",
        "clip_high": 0.28,
        "dynamic_sampling": True,
        "overlong_penalty": 1.0,
    },
    "dr_grpo": {**_GRPO, "aggregation": "fixed_length", "advantage": "group_mean"},
    "gspo": {**_GRPO, "objective": "gspo", "clip_low": 3e-4, "clip_high": 4e-4},
    "cispo": {**_GRPO, "objective": "cispo", "aggregation": "token_mean", "clip_low": 1.0, "clip_high": 4.0},
    "reinforce": {**_GRPO, "objective": "reinforce", "aggregation": "token_mean", "advantage": "group_mean"},
}
"""Overrides by name; lay them over the controls with `Controls.overlaid`."""
