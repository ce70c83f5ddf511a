"""Settings: bad ones are refused by name, good ones are laid over by dotted path or table."""

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
        ({"window": 1}, "window: 1 must be at least 2 steps"),
        ({"window": {"x": 1}}, "window: .* is not a int"),
        ({"policy": 3}, "policy: 3 is not a table"),
        ({"policy": 3, "policy.settle": 3}, "policy is given twice"),
        ({"mode": "autopilot"}, "mode: 'autopilot' is none of observe"),
        ({"policy.allow": "score_centering"}, "policy.allow: 'score_centering' is not a list"),
        ({"policy.allow": ["prayer"]}, "policy.allow"),
        ({"policy.budget": -1}, "policy.budget: -1"),
        ({"policy.relax_std": 0.5}, "policy.relax_std: 0.5 must be below detectors.mismatch.std_limit"),
        ({"detectors.mismatch.std_limit": float("nan")}, r"detectors\.mismatch\.std_limit: nan"),
        ({"detectors.reward.cusum.h": 0.0}, r"cusum\.h: 0.0"),
        ({"incidents.keep_firing_for": 0}, "incidents.keep_firing_for: 0"),
        ({"regime.entropy_factor": 1.0}, "regime.entropy_factor: 1.0"),
    ],
)
def test_bad_settings_name_the_field(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_settings(AgentConfig(), settings)


def test_a_config_survives_json() -> None:
    adapter = TypeAdapter(AgentConfig)
    config = with_settings(AgentConfig(), {"policy.allow": [], "mode": "approve", "detectors.asymmetry.cusum.k": 0.5})
    assert adapter.validate_json(adapter.dump_json(config)) == config


def test_every_detector_has_settings_and_memory_of_its_name() -> None:
    assert list(DETECTORS) == list(DetectorSettings.__dataclass_fields__) == list(Detectors.__dataclass_fields__)
