"""Switch: a healthy BF16 run whose rollouts go to NVFP4 at step 12, as when a fleet turns quantised serving on."""

from __future__ import annotations

from trimtab.trainer.config import RunConfig
from trimtab.trainer.scenarios.scenario import Scenario, ScenarioRun
from trimtab.trainer.sections import OutlierConfig, RolloutConfig, ScheduledChange, ShadowConfig

SWITCH_STEP = 12

_REFERENCE = RunConfig(
    steps=180,
    rollout=RolloutConfig(lag=2),
    shadow=ShadowConfig(every=1),
    outliers=OutlierConfig(channels=4, scale=16.0, seed=1),
)
_SWITCHED = _REFERENCE.model_copy(
    update={"schedule": (ScheduledChange(step=SWITCH_STEP, controls={"sampler_format": "nvfp4"}),)}
)

SCENARIO = Scenario(
    name="switch",
    title=f"NVFP4 rollouts switched on at step {SWITCH_STEP}",
    note="activation outliers as in real LLMs, function-preserving: 4 channels x16 before the quantiser",
    runs=(
        ScenarioRun(name="bf16", title="BF16 reference", config=_REFERENCE),
        ScenarioRun(name="unattended", title="NVFP4, unattended", config=_SWITCHED, cause_step=SWITCH_STEP),
        ScenarioRun(
            name="agent",
            title="NVFP4, agent in auto",
            config=_SWITCHED,
            mode="auto",
            cause_step=SWITCH_STEP,
        ),
    ),
    quick=(),
)
