"""Settings: bad ones are refused by name, good ones are laid over by dotted path or table."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from pydantic import TypeAdapter

from trimtab.agent.checks import ConfigError
from trimtab.agent.config import AgentConfig, with_settings
from trimtab.agent.detectors import DETECTORS, Detectors, DetectorSettings
from trimtab.agent.state import Mode


def test_dotted_names_and_tables_say_the_same() -> None:
    dotted = with_settings(AgentConfig(), {"detectors.mismatch.std_limit": 0.3, "policy.settle": 7, "mode": "auto"})
    tables = with_settings(
        AgentConfig(), {"detectors": {"mismatch": {"std_limit": 0.3}}, "policy": {"settle": 7}, "mode": Mode.AUTO}
    )
    assert dotted == tables
    assert dotted.detectors.mismatch.std_limit == 0.3
    assert dotted.policy.settle == 7
    assert dotted.mode is Mode.AUTO


def test_a_table_and_a_dotted_name_add_up() -> None:
    both = with_settings(AgentConfig(), {"policy": {"settle": 7}, "policy.cooldown": 3})
    assert (both.policy.settle, both.policy.cooldown) == (7, 3)


def test_lists_become_tuples_and_integers_become_floats() -> None:
    changed = with_settings(AgentConfig(), {"policy.allow": ["recomputed_ratio"], "detectors.mismatch.std_limit": 1})
    assert changed.policy.allow == ("recomputed_ratio",)
    assert type(changed.detectors.mismatch.std_limit) is float


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"detectors.mismatch.std_limt": 1.0},
            r"detectors\.mismatch\.std_limt: no such setting; here there are std_",
        ),
        ({"detectors.nope.x": 1.0}, r"detectors\.nope: no such setting"),
        ({"window": 2.5}, "window: 2.5 is not a int"),
        ({"window": True}, "window: True is not a int"),
        ({"window": 1}, "window: 1 must be 2 to 1000 steps"),
        ({"window": 10**400}, "window: 10*0 must be 2 to 1000 steps"),
        ({"baseline.warmup": 10**400}, r"baseline\.warmup: 10*0 must be 10 to 1000 steps"),
        ({"detectors.reward.margin": 0}, r"detectors\.reward\.margin: 0\.0 must be in \(0, 1000000\]"),
        ({"detectors.reward.margin": 10**400}, r"detectors\.reward\.margin: 10*0 must be below 2"),
        ({"detectors.entropy.floor": float("inf")}, r"detectors\.entropy\.floor: inf must be"),
        ({"window": {"x": 1}}, "window: .* is not a int"),
        ({"policy": 3}, "policy: 3 is not a table"),
        ({"policy": 3, "policy.settle": 3}, "policy is given twice"),
        ({"mode": "autopilot"}, "mode: 'autopilot' is none of observe"),
        ({"policy.allow": "score_centering"}, "policy.allow: 'score_centering' is not a list"),
        ({"policy.allow": ["prayer"]}, "policy.allow"),
        ({"policy.budget": -1}, "policy.budget: -1"),
        ({"policy.relax_std": 0.5}, "policy.relax_std: 0.5 must be below detectors.mismatch.std_limit"),
        ({"detectors.mismatch.std_limit": float("nan")}, r"detectors\.mismatch\.std_limit: nan"),
        ({"detectors.reward.cusum.h": 0.0}, r"^detectors\.reward\.cusum\.h: 0\.0 must be"),
        ({"policy.limits.lr_scale.low": -1}, r"policy\.limits\.lr_scale\.low: -1\.0 must be 0 to"),
        ({"policy.limits.lr_scale.high": 0.01}, r"policy\.limits\.lr_scale\.high: 0\.01 must be 0\.1 to"),
        ({"incidents.keep_firing_for": 0}, "incidents.keep_firing_for: 0"),
        ({"regime.entropy_factor": 1.0}, "regime.entropy_factor: 1.0"),
    ],
)
def test_bad_settings_name_the_field(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_settings(AgentConfig(), settings)


def leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for each in fields(node):
        value = getattr(node, each.name)
        if is_dataclass(value):
            yield from leaves(value, f"{prefix}{each.name}.")
        else:
            yield prefix + each.name, value


NUMBERS = {name: value for name, value in leaves(AgentConfig()) if type(value) in (int, float)}


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_is_bounded_on_both_sides(name: str) -> None:
    wrong: list[Any] = [-1, 10**9, 10**400]
    if isinstance(NUMBERS[name], float):
        wrong += [float("nan"), float("inf"), float("-inf")]
    for value in wrong:
        with pytest.raises(ConfigError, match=name.rpartition(".")[2]):
            with_settings(AgentConfig(), {name: value})


def test_a_config_survives_json() -> None:
    adapter = TypeAdapter(AgentConfig)
    config = with_settings(AgentConfig(), {"policy.allow": [], "mode": "approve", "detectors.asymmetry.cusum.k": 0.5})
    assert adapter.validate_json(adapter.dump_json(config)) == config


def test_every_detector_has_settings_and_memory_of_its_name() -> None:
    assert list(DETECTORS) == list(DetectorSettings.__dataclass_fields__) == list(Detectors.__dataclass_fields__)


def test_references_come_from_a_file_and_not_from_a_setting() -> None:
    with pytest.raises(ConfigError, match=r"references: cannot be written as a setting; give `trimtab serve"):
        with_settings(AgentConfig(), {"references": {"nvfp4": {}}})
