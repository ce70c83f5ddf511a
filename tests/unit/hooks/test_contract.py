"""What a trainer and a sampler may not disagree about, and how a disagreement is told."""

from dataclasses import fields, replace

import pytest

from trimtab.hooks.contract import Difference, TensorContract, contract_differences, report

NVFP4 = TensorContract(
    format="nvfp4-46", scale_mode="e4m3 block 16, float32 per token", tie_rule="mse, ties to 6", quantised=True
)
BF16 = TensorContract(format="bf16", scale_mode="none", tie_rule="none", quantised=False)


def test_sides_that_agree_have_no_difference():
    side = {"b.weight": NVFP4, "a.weight": BF16}
    assert contract_differences(side, dict(reversed(side.items()))) == ()
    assert contract_differences({}, {}) == ()
    assert report(()) == "The trainer and the sampler agree on every tensor."


@pytest.mark.parametrize(
    ("field", "value"), [("scale_mode", "e4m3 block 16, float32 per tensor"), ("tie_rule", "mae, ties to 6")]
)
def test_a_field_that_differs_is_named_with_both_values(field, value):
    (difference,) = contract_differences({"w": NVFP4}, {"w": replace(NVFP4, **{field: value})})
    assert difference == Difference(tensor="w", field=field, trainer=getattr(NVFP4, field), sampler=value)
    assert report((difference,)) == (
        f"1 tensor has {field} {getattr(NVFP4, field)!r} in the trainer but {value!r} in the sampler: w."
    )


def test_every_field_of_the_contract_is_compared():
    other = TensorContract(format="x", scale_mode="x", tie_rule="x", quantised=False)
    for field in fields(TensorContract):
        changed = replace(NVFP4, **{field.name: getattr(other, field.name)})
        assert [d.field for d in contract_differences({"w": changed}, {"w": NVFP4})] == [field.name]


def test_another_format_is_one_difference_not_four():
    assert contract_differences({"w": NVFP4}, {"w": BF16}) == (
        Difference(tensor="w", field="format", trainer="nvfp4-46", sampler="bf16"),
    )


def test_a_tensor_missing_on_one_side_is_a_difference():
    found = contract_differences({"a": NVFP4, "b": BF16}, {"b": BF16, "c": BF16})
    assert found == (
        Difference(tensor="a", field="format", trainer="nvfp4-46", sampler="missing"),
        Difference(tensor="c", field="format", trainer="missing", sampler="bf16"),
    )
    assert report(found) == (
        "1 tensor is NVFP4-46 in the trainer but missing in the sampler: a. "
        "1 tensor is missing in the trainer but BF16 in the sampler: c."
    )


def test_differences_are_sorted_and_the_report_groups_them_by_kind():
    trainer = {"z": NVFP4, "a": NVFP4, "m": NVFP4, "same": BF16}
    sampler = {"m": replace(NVFP4, tie_rule="none"), "z": BF16, "a": BF16, "same": BF16}
    found = contract_differences(trainer, sampler)
    assert [difference.tensor for difference in found] == ["a", "m", "z"]
    assert report(found) == (
        "2 tensors are NVFP4-46 in the trainer but BF16 in the sampler: a, z. "
        "1 tensor has tie_rule 'mse, ties to 6' in the trainer but 'none' in the sampler: m."
    )
