"""Everything the agent knows about one job: the state that is folded over its ledger."""

from __future__ import annotations

from dataclasses import dataclass, field

from trimtab.agent.baselines import Level
from trimtab.agent.canary import Canary, Values
from trimtab.agent.detectors import Detectors
from trimtab.agent.rung import Rung
from trimtab.agent.state import Incident, Mode, Proposal, Silence, Verdict
from trimtab.agent.tracks import Track
from trimtab.agent.values import quick
from trimtab.hooks.controls import Capabilities, Controls, ControlValue
from trimtab.hooks.log_facts import LogFacts
from trimtab.hooks.records import StepSummary, check_job


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What the trainer last said about itself."""

    generation: int
    applied: Controls
    capabilities: Capabilities
    overrides: dict[str, ControlValue]
    refusals: tuple[str, ...] = ()
    log: LogFacts | None = None
    """Where it does not say so itself, but is read."""
    censored: dict[str, float] = field(default_factory=dict)
    """What was told of the scalars that are censored in that log."""

    @property
    def refused(self) -> dict[str, str]:
        """Why, by control, overrides of this generation were left out."""
        return {line.split(":")[0]: line for line in self.refusals}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """How far the agent has gone against a cause, and what it may not try."""

    rungs: tuple[Rung, ...] = ()
    """Remedies in force, oldest first; relaxing takes the newest back."""
    refused: dict[str, str] = field(default_factory=dict)
    """Remedies that are out until the incidents that asked for them end, and why."""
    blocked: str | None = None
    """Kind of the reason, already on record, for which nothing at all may be done."""
    actions: tuple[int, ...] = ()
    """Ticks of the agent's changes, the last 1000 steps."""
    tried: dict[str, int] = field(default_factory=dict)
    """How often each remedy was put in force."""
    rollbacks: tuple[int, ...] = ()
    """Ticks of changes taken back for their harm, the last 1000 steps."""
    locked: str = ""
    """Why the agent acts no more until a person sets its mode; empty where it may."""
    calm: int = 0
    """Steps in a row without the cause."""
    harmed: int = 0
    """Steps in a row on which the run is harmed, under the newest remedy, without a gain of reward."""
    trough: float | None = None
    """Lowest mean reward of those steps."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is known of steps that are missing; see `trimtab.agent.ordering`."""

    held: tuple[StepSummary, ...] = ()
    """Summaries that arrived ahead of a missing one and are not judged yet, in the order of steps."""
    stride: int | None = None
    """Fewest steps from one summary of this attempt to the next; None before the second."""
    dropped: int = 0
    """Summaries that the trainer had lost by the newest that was judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """One job. A value: `advance` returns a new one. Survives JSON unchanged.

    >>> RunState.initial("cliff").mode
    <Mode.OBSERVE: 'observe'>
    """

    job: str
    mode: Mode
    attempt: int = 0
    """The newest attempt seen."""
    last_step: int = -1
    """The newest step seen of that attempt; -1 before the first."""
    order: Order = field(default_factory=Order)
    older_reported: bool = False
    """An older attempt has reported since this one began, and it is on record."""
    steps: int = 0
    """Summaries judged in that attempt."""
    tick: int = 0
    """Summaries judged in all attempts: the agent's clock."""
    reported: Reported | None = None
    tracks: dict[str, Track] = field(default_factory=dict)
    """By signal."""
    regime_entropy: float | None = None
    """Mean entropy when the ratio signals' baselines were begun, nats."""
    detectors: Detectors = field(default_factory=Detectors)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """By detector, on the newest step."""
    incidents: dict[str, Incident] = field(default_factory=dict)
    """By fingerprint; a resolved one stays until it fires again."""
    silences: tuple[Silence, ...] = ()
    """At most one a fingerprint; one that is over stays until the next step."""
    past: dict[str, Level] = field(default_factory=dict)
    """What some signals were like in the attempts before, at their worst; see `trimtab.agent.resume`."""
    adopted: dict[str, ControlValue] = field(default_factory=dict)
    """Overrides found at the trainer that this ledger never asked for, kept until a person changes them."""
    person_overrides: dict[str, ControlValue] = field(default_factory=dict)
    """Controls that people set. No remedy overrides them; what does harm is taken back (`trimtab.agent.rollback`)."""
    generation: int = 0
    """Grows with every change of the overrides, and never shrinks."""
    commanded: int = 0
    """The newest generation that went out in an answer: one above it at the trainer is not of our making."""
    behind: bool = False
    """The ledger was restored from a backup, and the trainer has not reported since: nothing is sent out until it has
    said what it holds."""
    unheeded: int = 0
    """Summaries in a row that did not report the generation in effect; stays once that is on record."""
    reason: str = ""
    """Of the last change."""
    issuer: str = ""
    """Of the last change."""
    ladder: Ladder = field(default_factory=Ladder)
    canary: Canary | None = None
    """The change that is being watched for harm."""
    history: dict[str, Values] = field(default_factory=dict)
    """What harm is seen by, of the latest steps of this attempt, by metric."""
    checkpoints: dict[str, float | None] = field(default_factory=dict)
    """The trainer's checkpoints that were taken while the run was healthy, and the mean reward then, where known."""
    judged_checkpoints: tuple[str, ...] = ()
    """All of the trainer's checkpoints that were judged, so that none is twice."""
    pin: str = ""
    """The checkpoint that the trainer is asked to keep while something is wrong."""
    killed: bool = False
    """A person took the agent's hands off; nothing is overridden until one sets the mode."""
    proposals: tuple[Proposal, ...] = ()
    """Waiting for a person, or standing as advice."""
    next_proposal: int = 1

    @staticmethod
    def initial(job: str, mode: Mode = Mode.OBSERVE) -> RunState:
        """The state of a job of which nothing has been seen.

        Raises:
            RecordError: `job` cannot name a job.
        """
        check_job(job)
        return RunState(job=job, mode=mode)

    @property
    def overrides(self) -> dict[str, ControlValue]:
        """What is wanted: what was found at the trainer, the agent's remedies over it, oldest first, and people's
        settings over both."""
        wanted = dict(self.adopted) | ({"pin": self.pin} if self.pin else {})
        for rung in self.ladder.rungs:
            wanted |= rung.overrides
        return wanted | self.person_overrides

    @property
    def in_sync(self) -> bool:
        """True when the trainer reports exactly what is wanted, less what it says that it refuses."""
        reported = self.reported
        if reported is None or reported.generation != self.generation:
            return False
        wanted = {name: value for name, value in self.overrides.items() if name not in reported.refused}
        return reported.overrides == wanted
