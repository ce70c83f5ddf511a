"""The order of the formats by their mismatch, on the demo's own model after its warm start."""

from __future__ import annotations

import pytest

from trimtab.trainer.config import RunConfig
from trimtab.trainer.ladder import Rung, ladder
from trimtab.trainer.sections import OutlierConfig

FP8 = (
    *("fp8-tensor", "fp8-tensor-hybrid", "fp8-tensor-acc14", "fp8-row", "fp8-row-acc14"),
    *("fp8-block", "fp8-block-32", "mxfp8", "mxfp8-rceil"),
)
E5M2 = {f"{name}-{variant}": name for name in ("fp8-tensor", "fp8-row") for variant in ("mixed", "e5m2")}
"""The same with E4M3, by name."""
NVFP4 = ("nvfp4", "nvfp4-46", "nvfp4-46-mae", "nvfp4-pretrain")


@pytest.fixture(scope="module")
def rungs() -> dict[str, Rung]:
    return {rung.format: rung for rung in ladder(RunConfig())}


@pytest.mark.slow
def test_fp8_is_far_closer_to_bf16_than_nvfp4(rungs: dict[str, Rung]) -> None:
    assert set(rungs) == {"bf16", "bf16 + fp8 kv", *FP8, *E5M2, *NVFP4}
    for name in FP8:
        assert rungs["bf16"].std < rungs["bf16 + fp8 kv"].std < rungs[name].std
        assert all(rungs[name].std < rungs[other].std / 3.5 for other in NVFP4)


@pytest.mark.slow
def test_a_bit_less_of_significand_costs_nearly_twice_the_mismatch(rungs: dict[str, Rung]) -> None:
    for name, e4m3 in E5M2.items():
        assert 1.5 * rungs[e4m3].std < rungs[name].std < rungs["nvfp4"].std


@pytest.mark.slow
def test_four_over_six_helps_where_there_are_no_outliers(rungs: dict[str, Rung]) -> None:
    assert rungs["nvfp4-46"].std < rungs["nvfp4"].std
    assert rungs["nvfp4-46-mae"].std < rungs["nvfp4"].std


@pytest.mark.slow
def test_power_of_two_scales_cost_more_than_exact_ones(rungs: dict[str, Rung]) -> None:
    assert rungs["mxfp8"].std > rungs["fp8-row"].std


@pytest.mark.slow
def test_outlier_channels_hurt_nvfp4_and_not_fp8(rungs: dict[str, Rung]) -> None:
    with_outliers = RunConfig(outliers=OutlierConfig(channels=2, scale=16.0, seed=11))
    hurt = {rung.format: rung for rung in ladder(with_outliers)}
    assert hurt["nvfp4"].std > 4 * rungs["nvfp4"].std
    assert hurt["fp8-row"].std < 1.2 * rungs["fp8-row"].std
