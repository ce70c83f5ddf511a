"""The agent's values: verdicts, incidents, proposals, events, and what a person tells it.

All of it is plain data that survives JSON unchanged (floats by repr), so a stored state is the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trimtab.agent.values import maker, quick
from trimtab.hooks.controls import ControlValue


class State(StrEnum):
    """A verdict's state. Only `OK` is green."""

    OK = "ok"
    WARN = "warn"
    CRITICAL = "critical"
    INCONCLUSIVE = "inconclusive"
    """The signals were seen, but they cannot be judged (non-finite, too few tokens, warming up)."""
    NOT_OBSERVED = "not_observed"
    """The run does not report what the detector needs."""

    @property
    def alarming(self) -> bool:
        """True for the two states that open an incident."""
        return self in (State.WARN, State.CRITICAL)


class Mode(StrEnum):
    """How far the agent may go with a job."""

    OBSERVE = "observe"
    """Watch and alert; never propose."""
    ADVISE = "advise"
    """Also put on record what it would do."""
    APPROVE = "approve"
    """Act once a person approves the proposal."""
    AUTO = "auto"
    """Act."""


class Phase(StrEnum):
    """Where an incident stands, in Alertmanager's words."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class EventKind(StrEnum):
    """What an audit row records."""

    ATTEMPT_STARTED = "attempt_started"
    VERDICT_CHANGED = "verdict_changed"
    INCIDENT_PENDING = "incident_pending"
    INCIDENT_FIRING = "incident_firing"
    INCIDENT_RESOLVED = "incident_resolved"
    INCIDENT_INHIBITED = "incident_inhibited"
    """An incident fires, and nobody is told: another one explains it, or a person silenced it."""
    INCIDENT_FLAPPING = "incident_flapping"
    """An incident that fires already has come back, and goes on as one."""
    RESUME_TRANSIENT = "resume_transient"
    """Something alarms right after a resume; it is an incident only if it stays."""
    SILENCED = "silenced"
    UNSILENCED = "unsilenced"
    ACKNOWLEDGED = "acknowledged"
    """A person looks after an incident."""
    PROPOSED = "proposed"
    APPROVED = "approved"
    REJECTED = "rejected"
    REFUSED = "refused"
    CHANGE_UNHARMFUL = "change_unharmful"
    """A change was watched, and did no harm that could be seen."""
    CHANGE_INCONCLUSIVE = "change_inconclusive"
    """Too little was seen of a change to say; it is watched as long again, once."""
    CHANGE_HARMFUL = "change_harmful"
    """A change did harm, or nothing could be seen of it twice."""
    ROLLED_BACK = "rolled_back"
    LOCKED_OUT = "locked_out"
    """Two changes were taken back, or the budget had no room to: no action until a person sets the mode."""
    CHECKPOINT_PINNED = "checkpoint_pinned"
    """The trainer is asked to keep a checkpoint, or no longer."""
    KILLED = "killed"
    """A person lifted every override and took the agent's hands off."""
    WITHDRAWN = "withdrawn"
    """A proposal lost its ground: its incident ended, the controls changed under it, or nobody answered in time."""
    CONTROLS_CHANGED = "controls_changed"
    CONTROLS_APPLIED = "controls_applied"
    CONTROLS_TAKEN_OVER = "controls_taken_over"
    """The trainer has overrides, or a generation, that this ledger never asked for; they are kept."""
    CONTROLS_IGNORED = "controls_ignored"
    """The trainer has gone on for long without the overrides that it was sent; on record once a generation."""
    MODE_CHANGED = "mode_changed"
    RUN_CHANGED_CONTROLS = "run_changed_controls"
    """The run's own schedule changed a control that nobody overrides."""
    RESTORED = "restored"
    """The ledger was restored from a backup: what was decided after it is lost. The agent acts no more until a person
    sets the mode."""
    OLDER_ATTEMPT = "older_attempt"
    """An older attempt than the one that is judged still reports; on record once an attempt."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a detector makes of one step."""

    state: State
    score: float = 0.0
    """How far past its limit: 1 is at the limit."""
    evidence: dict[str, float] = field(default_factory=dict)
    """The numbers it judged, and the limits it judged them by."""
    message: str = ""
    """One line for a person: what was seen, against what."""
    rule: str = ""
    """Which of its rules spoke, where a detector has several that ask for different things."""

    def signed(self, detector: str) -> Verdict:
        """The finding as the word of the detector of that name."""
        return _verdict(
            detector=detector,
            state=self.state,
            score=self.score,
            evidence=self.evidence,
            message=self.message,
            rule=self.rule,
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Finding):
    """One detector's word on one step."""

    detector: str


_verdict = maker(Verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """A person looks after an incident, as it is: one that gets worse, or comes back, is nobody's again."""

    issuer: str
    reason: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A condition that lasts. One fingerprint has at most one incident that is not resolved."""

    fingerprint: str
    """Stable over the run: job and detector, never a value or a step."""
    detector: str
    severity: State
    phase: Phase
    since_step: int
    """First step of the condition."""
    firing_step: int | None = None
    last_alarm_step: int
    """Newest step on which the detector alarmed."""
    alarms: int = 1
    """Steps in a row on which the detector has alarmed; decides when a pending incident fires."""
    clean: int = 0
    """Steps judged OK since the last alarm, those not judged left out; decides when a firing incident resolves."""
    occurrences: int = 1
    """How often this fingerprint has begun to alarm and fired, so that flapping shows as one incident that keeps coming
    back."""
    onsets: tuple[int, ...] = ()
    """Ticks at which it began, the latest last; those that count for flapping."""
    flap_rate: float | None = None
    """Onsets a step, where it comes and goes; None where it does not."""
    cause: str | None = None
    """Fingerprint of the incident that explains it: both are told as one. None where it is told for itself."""
    silenced: bool = False
    """A person does not want to be told of it."""
    acknowledged: Acknowledgement | None = None
    """Who looks after it; None while nobody does. It is judged, told and acted on all the same."""
    resolved_step: int | None = None
    message: str = ""
    evidence: dict[str, float] = field(default_factory=dict)
    rule: str = ""
    """Of the verdict."""
    likely_cause: str = ""
    proposed: str = ""
    """What to do about it."""
    cost: str = ""
    """What that costs."""

    @property
    def told(self) -> bool:
        """It fires, and people are told of it by itself."""
        return self.phase is Phase.FIRING and self.cause is None and not self.silenced


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A person does not want to be told of an incident."""

    fingerprint: str
    issuer: str
    until_tick: int | None = None
    """First summary, counted over all attempts, at which it is over; None until it is cancelled."""

    def is_over(self, tick: int) -> bool:
        """Whether it no longer holds at a summary."""
        return self.until_tick is not None and tick >= self.until_tick


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One row of the audit trail."""

    kind: EventKind
    attempt: int
    step: int
    detail: dict[str, Any] = field(default_factory=dict)
    message: str = ""


class Direction(StrEnum):
    """Which way a change of the remedies goes."""

    TIGHTEN = "tighten"
    """One more remedy."""
    RELAX = "relax"
    """The newest remedy is taken back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change of the overrides that waits for a person, or that was made on advice only."""

    id: int
    direction: Direction
    remedy: str
    rung: int
    """Place on the ladder, from 0."""
    incident: str
    """Fingerprint of the incident that asked for it."""
    step: int
    overrides: dict[str, ControlValue]
    """Complete overrides after the change."""
    base_generation: int
    """Generation that the change was worked out against; at another generation it is void."""
    until_tick: int
    """First summary, counted over all attempts, at which it is void for want of an answer."""
    reason: str

    def changes(self, before: Mapping[str, ControlValue]) -> dict[str, ControlValue | None]:
        """What it changes of the overrides `before`: the values that it sets, and None for those that it lifts."""
        lifted: dict[str, ControlValue | None] = {name: None for name in before if name not in self.overrides}
        return lifted | self.sets(before)

    def sets(self, before: Mapping[str, ControlValue]) -> dict[str, ControlValue]:
        """The values that it sets, other than those of the overrides `before`."""
        return {name: value for name, value in self.overrides.items() if before.get(name) != value}


class OperatorVerb(StrEnum):
    """What a person can tell the agent."""

    PATCH_CONTROLS = "patch_controls"
    SET_MODE = "set_mode"
    APPROVE = "approve"
    REJECT = "reject"
    KILL = "kill"
    """Lift every override, whoever set it, and observe."""
    SILENCE = "silence"
    UNSILENCE = "unsilence"
    ACKNOWLEDGE = "acknowledge"
    """Look after an incident."""
    RESTORED = "restored"
    """Whoever restored the database from a backup says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAction:
    """A person's decision, stored in the ledger beside the summaries so that a replay sees it at the same place."""

    job: str
    verb: OperatorVerb
    issuer: str
    reason: str
    overrides: dict[str, ControlValue | None] = field(default_factory=dict)
    """For `patch_controls`: values to set; None lifts an override."""
    mode: Mode | None = None
    """For `set_mode`."""
    proposal: int | None = None
    """For `approve` and `reject`: the proposal's id."""
    changes: dict[str, ControlValue | None] | None = None
    """For `approve` and `reject`: the very changes that the person saw, None where an override is lifted; another
    proposal under that id is not decided on. None in older ledgers, where nothing was compared."""
    target: str = ""
    """For `silence`, `unsilence` and `acknowledge`: a detector, or the fingerprint of an incident."""
    steps: int | None = None
    """For `silence`: how many steps it lasts; None until it is cancelled."""
