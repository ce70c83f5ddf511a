"""What is a number, and what only looks like one."""

import json
import math
from dataclasses import asdict
from typing import Any

import pytest
from agent_runs import Plant
from fastapi.exceptions import RequestValidationError

from trimtab.agent.config import AgentConfig
from trimtab.api.reported import summary_in
from trimtab.api.strict import check_numbers
from trimtab.storage.codec import SUMMARY

SUMMARY_TEXT = json.loads(SUMMARY.encode(Plant(seed=0).advance()))


def read(**changes: Any) -> Any:
    return summary_in(json.dumps({**SUMMARY_TEXT, **changes}).encode())


@pytest.mark.parametrize("value", [True, False, "3", "", 3.5, None, [3], {"a": 3}, "NaN"])
def test_nothing_but_a_whole_number_is_a_step(value: Any) -> None:
    with pytest.raises(RequestValidationError) as caught:
        read(step=value)
    assert [error["loc"] for error in caught.value.errors()] == [("body", "step")]


@pytest.mark.parametrize("value", [True, "3", "", "nan", "inf", None, [3.0], math.nan, math.inf, 10**400])
def test_nothing_but_a_number_or_its_name_is_a_scalar(value: Any) -> None:
    with pytest.raises(RequestValidationError) as caught:
        read(scalars={"loss": value})
    assert [error["loc"] for error in caught.value.errors()] == [("body", "scalars", "loss")]


def test_what_no_float_holds_is_no_infinity() -> None:
    body = json.dumps({**SUMMARY_TEXT, "scalars": {"loss": 0.5}}).replace("0.5}", "1e400}")
    assert "1e400" in body
    with pytest.raises(RequestValidationError):
        summary_in(body.encode())


def test_numbers_are_read_as_they_are() -> None:
    summary = read(step=12.0, scalars={"a": 1, "b": -0.5, "c": "NaN", "d": "-Infinity"})
    assert (summary.step, type(summary.step)) == (12, int)
    assert math.isnan(summary.scalars.pop("c"))
    assert summary.scalars == {"a": 1.0, "b": -0.5, "d": -math.inf}


def test_a_whole_summary_is_read_as_the_ledger_reads_it() -> None:
    assert read() == SUMMARY.decode(json.dumps(SUMMARY_TEXT))


@pytest.mark.parametrize(
    ("config", "where"),
    [
        ({"window": True}, "window"),
        ({"window": "5"}, "window"),
        ({"detectors": {"reward": {"cusum": {"k": False}}}}, "detectors.reward.cusum.k"),
        ({"detectors": {"mismatch": {"std_limit": "0.3"}}}, "detectors.mismatch.std_limit"),
        ({"references": {"nvfp4": {"entropy": "low"}}}, "references.nvfp4.entropy"),
    ],
)
def test_settings_name_what_is_no_number(config: dict[str, Any], where: str) -> None:
    with pytest.raises(ValueError, match=rf"^{where}: .* is not a number$"):
        check_numbers(AgentConfig, config)


def test_settings_that_are_right_pass() -> None:
    check_numbers(AgentConfig, json.loads(json.dumps(asdict(AgentConfig()))))
    check_numbers(AgentConfig, {"unknown": True, "mode": "auto", "detectors": {"invariant": {"expected_exact": True}}})
    check_numbers(AgentConfig, None)
