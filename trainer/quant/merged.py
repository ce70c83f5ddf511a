"""Layers that serving engines merge into one matrix, whose weights then share the scale that a format has for a weight.

An engine that multiplies by q, k and v, or by gate and up, in one go has one scale for what was merged. vLLM quantises
the merged weight where it is given high precision, and takes the largest scale of the parts where it is given FP8 or
NVFP4 (`requantize_with_max_scale`; `process_weights_after_loading` of its NVFP4 schemes, which warns that parts with
scales of their own lose accuracy); llm-compressor therefore gives the parts of each group below one scale
(`update_fused_layer_weight_global_scales`). A trainer with a scale for each part would compute with other weights than
such a sampler.

So the parts of a group share it here, as if they were quantised as one: the largest magnitude is that of all of them.
That holds while all are in one format that is `tensor_wide`; where a recipe keeps only some of them, an engine cannot
merge, and each has its own scale. Scales of rows and of blocks are the same merged or apart (blocks of FP8: where the
parts have whole ones).
"""

from __future__ import annotations

from torch import nn

from trimtab.trainer.quant.linear import QuantLinear

GROUPS = (
    ("q_proj", "k_proj", "v_proj"),
    ("q_a_proj", "kv_a_proj_with_mqa"),
    ("gate_proj", "up_proj"),
)
"""Names of the children of one module that are merged, in order."""


def link_merged(model: nn.Module) -> None:
    """Let the converted layers of `model` that are merged know each other; see `QuantLayer.merged`."""
    for parent in model.modules():
        for names in GROUPS:
            parts = {name: part for name in names if isinstance(part := getattr(parent, name, None), QuantLinear)}
            if len(parts) == len(names) and len({part.in_features for part in parts.values()}) == 1:
                for part in parts.values():
                    part.merged = parts
