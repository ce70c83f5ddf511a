"""Training-stability monitor and auto-remediation agent for FP8/NVFP4 GRPO of language models.

    import trimtab

    emitter = trimtab.attach("http://127.0.0.1:8787", job="my-run")
    emitter.observe(train_logprobs=..., rollout_logprobs=..., advantages=..., loss_mask=...)
    controls = emitter.end_step(step=0, scalars={"reward_mean": 0.5})

Importing this package needs numpy and nothing else.
"""

from trimtab.hooks.attach import attach
from trimtab.hooks.controls import Capabilities, Controls
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.records import StepSummary

__version__ = "0.1.0"

__all__ = ["Capabilities", "Controls", "Emitter", "StepSummary", "__version__", "attach"]
