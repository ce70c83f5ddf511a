"""Every control of a job as a person sees it: in effect, wanted, possible."""

from __future__ import annotations

import math

from pydantic import Field, field_serializer

from trimtab.agent.run_state import RunState
from trimtab.api.views import View
from trimtab.hooks.controls import (
    CHECKPOINTS,
    CHOICES,
    CONTROL_NAMES,
    NUMERIC_BOUNDS,
    SWITCHES,
    Capabilities,
    ControlValue,
    Liveness,
)


class ControlView(View):
    """One control."""

    name: str
    applied: ControlValue | None = Field(
        description="In effect in the newest step; null before the first summary, and where a log is read."
    )
    desired: ControlValue | None = Field(description="The override that is wanted; null leaves it to the run.")
    by_person: bool = Field(description="A person set the override; the agent leaves it alone.")
    liveness: Liveness = Field(description="When a change takes effect in this trainer.")
    low: float | None = Field(description="Least value, for a number.")
    high: float | None = Field(description="Greatest value, for a number; null when there is none.")
    choices: list[ControlValue] = Field(description="The values it can take, for anything but a number.")

    @field_serializer("applied", "desired", when_used="json")
    def _unbounded_is_not_missing(self, value: ControlValue | None) -> ControlValue | None:
        """Infinity has a name, where JSON has no number for it: as null it would be no value at all."""
        return "Infinity" if value == math.inf else value


class ControlsView(View):
    """The level that the agent publishes, and what the trainer says about it."""

    job: str
    generation: int = Field(
        description="Of the overrides that are wanted; give it as `base_generation` to change them."
    )
    applied_generation: int | None = Field(description="Of the overrides in effect in the newest step.")
    in_sync: bool = Field(description="What is wanted is in effect, and nothing else.")
    refused: list[str] = Field(description="Controls whose override the trainer refuses; `refusals` says why.")
    overrides: dict[str, ControlValue] = Field(description="What is wanted; everything else is the run's own business.")
    reason: str = Field(description="Of the last change.")
    issuer: str = Field(description="Of the last change.")
    refusals: list[str] = Field(description="Why the trainer did not apply an override, one line each.")
    locked: str = Field(description="Why the agent acts no more until a person sets its mode; empty where it may.")
    killed: bool = Field(description="The kill switch is set: nothing is overridden until a person sets the mode.")
    controls: list[ControlView]


def controls_view(state: RunState) -> ControlsView:
    """The controls of a job in this state."""
    reported = state.reported
    wanted = state.overrides
    capabilities = reported.capabilities if reported else Capabilities(controls={})
    applied_generation = reported.generation if reported else None
    refused = [name for name in wanted if name in reported.refused] if reported and state.in_sync else []
    return ControlsView(
        job=state.job,
        generation=state.generation,
        applied_generation=applied_generation,
        in_sync=state.in_sync and not refused,
        refused=refused,
        overrides=wanted,
        reason=state.reason,
        issuer=state.issuer,
        refusals=list(reported.refusals) if reported else [],
        locked=state.ladder.locked,
        killed=state.killed,
        controls=[
            ControlView(
                name=name,
                applied=getattr(reported.applied, name) if reported and reported.log is None else None,
                desired=wanted.get(name),
                by_person=name in state.person_overrides,
                liveness=_liveness(name, capabilities),
                low=NUMERIC_BOUNDS[name].low if name in NUMERIC_BOUNDS else None,
                high=_finite(NUMERIC_BOUNDS[name].high) if name in NUMERIC_BOUNDS else None,
                choices=_choices(name, capabilities),
            )
            for name in CONTROL_NAMES
        ],
    )


def _liveness(name: str, capabilities: Capabilities) -> Liveness:
    """When a change of the control takes effect; where the rollouts record no head, centering cannot be had at all."""
    lacking = name == "centering" and not capabilities.sampler_head
    return Liveness.ABSENT if lacking else capabilities.controls.get(name, Liveness.ABSENT)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _choices(name: str, capabilities: Capabilities) -> list[ControlValue]:
    offered = {
        "sampler_format": capabilities.sampler_formats,
        "train_format": capabilities.train_formats,
        **dict.fromkeys(CHECKPOINTS, ("", *capabilities.checkpoints)),
    }
    if name in SWITCHES:
        return [False, True]
    return list(CHOICES.get(name, offered.get(name, ())))
