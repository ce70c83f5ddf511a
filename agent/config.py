"""The agent's settings: one frozen tree with good defaults, and one way to change a leaf of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from trimtab.agent.baselines import BaselineSettings
from trimtab.agent.checks import MOST, ConfigError, require
from trimtab.agent.control_limits import ControlLimits
from trimtab.agent.detectors import DetectorSettings
from trimtab.agent.incidents import IncidentSettings
from trimtab.agent.reference import Reference
from trimtab.agent.regime import RegimeSettings
from trimtab.agent.remedies import REMEDIES
from trimtab.agent.state import Mode

Node = TypeVar("Node")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """When the agent may act, and on what. Steps are summaries that arrived."""

    allow: tuple[str, ...] = tuple(name for name in REMEDIES if name != "pause")
    """Remedies that may be used."""
    limits: ControlLimits = field(default_factory=ControlLimits)
    """How far each control may be moved."""
    settle: int = 5
    """Steps after the start of an attempt without any action."""
    cooldown: int = 10
    """Steps between two actions; twice as many for each time that the remedy was in force before."""
    verify: int = 20
    """Steps that a remedy in effect is given before the next one is tried."""
    canary: int = 20
    """Steps that a change in effect is watched for harm, with nothing else changed meanwhile."""
    expire: int = 100
    """Steps that a proposal waits for an answer. It is made again while its ground lasts, from what is seen then."""
    budget: int = 10
    """Most actions in any 1000 steps, rollbacks included; one is made only where there is room for its rollback."""
    relax_std: float = 0.1
    """Mean mismatch spread below which the cause counts as gone, nats; below the limit at which it alarms."""
    relax_after: int = 100
    """Steps in a row without the cause before the newest remedy is taken back."""
    ess_floor: float = 0.1
    """Effective sample size below which no remedy is applied: a few tokens would carry the whole correction."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.allow) - set(REMEDIES))
        require(not unknown, "policy.allow", self.allow, f"among {', '.join(REMEDIES)}")
        for name in ("settle", "cooldown", "verify", "budget", "relax_after"):
            require(0 <= getattr(self, name) <= MOST, f"policy.{name}", getattr(self, name), f"0 to {MOST}")
        require(1 <= self.expire <= MOST, "policy.expire", self.expire, f"1 to {MOST} steps")
        require(10 <= self.canary <= 1000, "policy.canary", self.canary, "10 to 1000 steps")
        require(self.relax_std > 0, "policy.relax_std", self.relax_std, "above 0")
        require(0 <= self.ess_floor < 1, "policy.ess_floor", self.ess_floor, "in [0, 1)")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Every setting of the brain.

    >>> with_settings(AgentConfig(), {"detectors.mismatch.std_limit": 0.3}).detectors.mismatch.std_limit
    0.3
    """

    mode: Mode = Mode.OBSERVE
    """Mode of a job that nobody has set one for."""
    window: int = 5
    """Steps in a window mean."""
    baseline: BaselineSettings = field(default_factory=BaselineSettings)
    regime: RegimeSettings = field(default_factory=RegimeSettings)
    detectors: DetectorSettings = field(default_factory=DetectorSettings)
    incidents: IncidentSettings = field(default_factory=IncidentSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    references: dict[str, Reference] = field(default_factory=dict)
    """Calibrations by the format of the sampler; see `trimtab.agent.reference`."""

    def __post_init__(self) -> None:
        require(2 <= self.window <= 1000, "window", self.window, "2 to 1000 steps")
        limit = self.detectors.mismatch.std_limit
        require(
            self.policy.relax_std < limit,
            "policy.relax_std",
            self.policy.relax_std,
            f"below detectors.mismatch.std_limit = {limit:g}, or a remedy would be taken back while its cause alarms",
        )


def with_settings(config: AgentConfig, settings: Mapping[str, Any]) -> AgentConfig:
    """`config` with other leaves, named by dotted path (`detectors.mismatch.std_limit`) or by nested mappings as TOML
    gives them.

    Raises:
        ConfigError: a name that does not exist, a value of the wrong type, or one out of bounds. The message names
        the full path.
    """
    return _changed(config, _nested(settings), "")


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as a tree; a name given both ways keeps what is said of each of its leaves."""
    tree: dict[str, Any] = {}
    for path, value in settings.items():
        head, _, rest = path.partition(".")
        inner = {rest: value} if rest else value
        if not isinstance(inner, Mapping):
            tree[head] = inner
        elif isinstance(tree.get(head, {}), dict):
            tree[head] = _nested({**tree.get(head, {}), **inner})
        else:
            raise ConfigError(f"{path}: {head} is given twice, once as {tree[head]!r}")
    return tree


def _changed(node: Node, tree: Mapping[str, Any], prefix: str) -> Node:
    hints = get_type_hints(type(node))
    values: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if name not in hints:
            known = ", ".join(each.name for each in fields(node))  # type: ignore[arg-type]
            raise ConfigError(f"{path}: no such setting; here there are {known}")
        current = getattr(node, name)
        if is_dataclass(current):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{path}: {value!r} is not a table of settings")
            values[name] = _changed(current, value, f"{path}.")
        else:
            values[name] = _typed(value, hints[name], path)
    return replace(node, **values)  # type: ignore[type-var]


def _typed(value: Any, hint: Any, path: str) -> Any:
    """`value` as the type `hint`, where nothing is lost by it."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        known = [member.value for member in hint]
        if value not in known:
            raise ConfigError(f"{path}: {value!r} is none of {', '.join(map(str, known))}")
        return hint(value)
    if get_origin(hint) is dict:
        raise ConfigError(f"{path}: cannot be written as a setting; give `trimtab serve --calibration` the file")
    if get_origin(hint) is tuple:
        if isinstance(value, str) or not isinstance(value, list | tuple):
            raise ConfigError(f"{path}: {value!r} is not a list")
        return tuple(_typed(item, get_args(hint)[0], f"{path}[{i}]") for i, item in enumerate(value))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        # Above 2^53 a float may be another number.
        require(abs(value) < 2**53, path, value, "below 2^53 in size")
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{path}: {value!r} is not a {hint.__name__}")
    return value
