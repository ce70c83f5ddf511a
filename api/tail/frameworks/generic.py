"""Any other loop: keys that are called what trimtab calls it are taken at their word."""

from __future__ import annotations

from trimtab.agent.signals.behaviour import SCALARS
from trimtab.api.tail.assembly import Axis
from trimtab.api.tail.frameworks.framework import Framework, Meaning

_SAME = {
    "loss": "training loss",
    "reward_std": "standard deviation of the rewards",
    "entropy": "mean entropy of the trainer's distribution, nats",
    "mismatch_kl": "k3 KL of sampler to trainer, nats",
    "mismatch_mean": "mean of trainer log-prob - sampler log-prob, nats",
    "retained_fraction": "share of tokens or responses that importance masking keeps",
    "mask_tokens_excess": "tokens under the loss mask that are padding",
    "centering_size": "size of the score-centering term",
    **SCALARS,
}

GENERIC = Framework(
    name="generic",
    title="any other loop",
    prefixes=("train/",),
    marks=(),
    axis=Axis(step_keys=("train/global_step", "trainer/global_step")),
    keys={
        **{name: Meaning(name=name, says=says, fraction=name.endswith("_fraction")) for name, says in _SAME.items()},
        "reward": Meaning(name="reward_mean", says="mean reward"),
    },
    blind=("What a key means is taken from its name.",),
)
"""The table."""
