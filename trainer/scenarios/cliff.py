"""Cliff: NVFP4 rollouts of a model with activation outliers, from step 0, the ratio against the sampler's log-probs.

Whether the run collapses depends on the mismatch, and the mismatch on which channels carry the outliers: of twelve
draws of two channels, the standard deviation of log p - log q runs from 0.24 to 0.70, and runs from about 0.5 upwards
fall to chance, below it they stay at half of the reward. The draw below starts at 0.50.
"""

from __future__ import annotations

from trimtab.hooks.controls import Controls
from trimtab.trainer.config import RunConfig
from trimtab.trainer.scenarios.scenario import Scenario, ScenarioRun
from trimtab.trainer.sections import OutlierConfig, RolloutConfig, ShadowConfig

_REFERENCE = RunConfig(
    steps=110,
    rollout=RolloutConfig(lag=2),
    shadow=ShadowConfig(every=1),
    outliers=OutlierConfig(channels=2, scale=16.0, seed=11),
)
_LOW_PRECISION = _REFERENCE.model_copy(
    update={"controls": Controls(ratio_reference="sampler", sampler_format="nvfp4")},
)
_CLEAN = _LOW_PRECISION.model_copy(update={"outliers": OutlierConfig()})

SCENARIO = Scenario(
    name="cliff",
    title="NVFP4 rollouts from the first step",
    note="activation outliers as in real LLMs, function-preserving: 2 channels x16 before the quantiser",
    runs=(
        ScenarioRun(name="bf16", title="BF16 reference", config=_REFERENCE),
        ScenarioRun(name="unattended", title="NVFP4, unattended", config=_LOW_PRECISION, cause_step=0),
        ScenarioRun(name="agent", title="NVFP4, agent in auto", config=_LOW_PRECISION, mode="auto", cause_step=0),
        ScenarioRun(
            name="calibrated",
            title="NVFP4, calibrated clip only",
            config=_LOW_PRECISION,
            mode="auto",
            remedies=("calibrated_clipping",),
            cause_step=0,
        ),
        ScenarioRun(name="clean", title="NVFP4 without outliers", config=_CLEAN),
    ),
    quick=("bf16", "unattended", "agent"),
)
