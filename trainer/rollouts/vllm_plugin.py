"""What trimtab adds to vLLM; the entry point `trimtab` of `vllm.general_plugins`, which every process of vLLM loads."""

from __future__ import annotations

import warnings


def register() -> None:
    """Register the quantisation and the weight transfer; doing so twice is as good as once."""
    try:
        # Importing it registers the quantisation.
        from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

        import trimtab.trainer.rollouts.vllm_quant  # noqa: F401
        from trimtab.trainer.rollouts.vllm_transfer import BACKEND, TrimtabTransfer
    except ImportError as error:
        # Somebody who serves with another version, and without trimtab in mind, should not find it broken.
        warnings.warn(f"trimtab: this vLLM lacks what rollouts need, vllm >= 0.32: {error}", stacklevel=2)
        return
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, TrimtabTransfer)
