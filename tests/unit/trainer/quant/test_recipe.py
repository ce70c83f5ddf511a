"""Recipes and their presets."""

from dataclasses import replace

import pytest

from trimtab.trainer.quant import RECIPES, Recipe, recipe_named

NVFP4_RL = Recipe(
    name="nvfp4-rl",
    format="nvfp4-46",
    backward="dequantized",
    keep_format="bf16",
    keep_head=True,
    keep_attention=True,
    moe_only=False,
    keep_shared_experts=True,
    keep_last=0.15,
)


def test_the_presets_by_name():
    fp8 = ["fp8-tensor", "fp8-tensor-hybrid", "fp8-row", "fp8-block"]
    assert list(RECIPES) == ["bf16", *fp8, "mxfp8", "nvfp4-pretrain", "nvfp4-rl"]
    assert all(recipe_named(name) is recipe and recipe.name == name for name, recipe in RECIPES.items())
    assert RECIPES["nvfp4-rl"] == NVFP4_RL
    for name in fp8:
        assert RECIPES[name] == Recipe(name=name, format=name, backward="quantized")
    assert RECIPES["mxfp8"] == Recipe(name="mxfp8", format="mxfp8", backward="dequantized")
    assert RECIPES["nvfp4-pretrain"] == Recipe(
        name="nvfp4-pretrain", format="nvfp4-pretrain", backward="quantized", keep_last=0.15
    )


@pytest.mark.parametrize(
    ("fraction", "layers", "kept"),
    [
        (0.15, 48, 7),
        (0.15, 28, 4),
        (0.15, 30, 5),  # 4.5: the half goes up, where round() would go to the even 4
        (0.15, 2, 1),
        (0.001, 100, 1),
        (0.0, 48, 0),
        (0.5, 3, 2),
        (1.0, 48, 48),
    ],
)
def test_the_last_layers_are_rounded_to_the_nearest_and_one_at_the_least(fraction, layers, kept):
    assert Recipe(name="test", format="nvfp4", keep_last=fraction).last_layers(layers) == kept


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", "fp4", r"^format: 'fp4' is none of fp32, bf16, .*nvfp4-46"),
        ("keep_format", "none", r"^keep_format: 'none' is none of fp32"),
        ("backward", "quantised", r"^backward: 'quantised' is none of .*dequantized"),
        ("keep_last", 1.5, r"^keep_last: 1\.5 is not in \[0, 1\]"),
        ("keep_last", -0.1, r"^keep_last: -0\.1 is not in \[0, 1\]"),
        ("keep_last", float("nan"), r"^keep_last: nan is not in \[0, 1\]"),
    ],
)
def test_a_recipe_refuses_what_it_cannot_be_and_names_the_field(field, value, message):
    with pytest.raises(ValueError, match=message):
        replace(NVFP4_RL, **{field: value})


def test_an_unknown_preset_is_refused_with_the_list_of_them():
    with pytest.raises(ValueError, match=r"recipe: 'fp8' is none of bf16, fp8-tensor, .*, nvfp4-rl"):
        recipe_named("fp8")
