"""Every recipe by name: a new one is one line here.

The backward modes are those that each format is trained with:

    fp8-*            quantized     all three matmuls in FP8, as torchao's tensorwise and rowwise recipes, Transformer
                                   Engine's defaults and DeepSeek-V3 (arXiv 2412.19437) have it; Transformer Engine's
                                   for one scale a tensor are hybrid, with gradients in E5M2
    mxfp8            dequantized   the lowest and steadiest gradient norm of the three in reinforcement learning
    nvfp4-pretrain   quantized     arXiv 2509.25149: stochastic rounding and a Hadamard transform make up for it; both
                                   are part of the format
    nvfp4-rl         dequantized   with four-over-six and the kept layers below, the one combination without spikes of
                                   the gradient norm over repeated runs

`bf16` is the reference for all of them, so its gradients are not rounded either.
"""

from __future__ import annotations

from trimtab.trainer.quant.recipe import Recipe

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(name="bf16", format="bf16"),
        Recipe(name="fp8-tensor", format="fp8-tensor", backward="quantized"),
        Recipe(name="fp8-tensor-hybrid", format="fp8-tensor-hybrid", backward="quantized"),
        Recipe(name="fp8-row", format="fp8-row", backward="quantized"),
        Recipe(name="fp8-block", format="fp8-block", backward="quantized"),
        Recipe(name="mxfp8", format="mxfp8"),
        Recipe(name="nvfp4-pretrain", format="nvfp4-pretrain", backward="quantized", keep_last=0.15),
        Recipe(name="nvfp4-rl", format="nvfp4-46", keep_attention=True, keep_shared_experts=True, keep_last=0.15),
    )
}


def recipe_named(name: str) -> Recipe:
    """The preset called `name`.

    Raises:
        ValueError: there is none; the message lists the presets.
    """
    if name not in RECIPES:
        raise ValueError(f"recipe: {name!r} is none of {', '.join(RECIPES)}")
    return RECIPES[name]
