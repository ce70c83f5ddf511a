"""The whole brain: a fold of one record into the state of a job.

Replaying a ledger gives the same states, events and commands; a summary that was seen before changes nothing, and one
that arrives ahead of another waits for it a little (`trimtab.agent.ordering`); a command is a level, and rides on every
reply until the trainer reports it.

The trainer's report is compared with what is wanted as a whole: every override, no more and no less, but for those
that the trainer says it refuses. Overrides or a generation that this ledger never sent out come from another agent, or
from this one before its database was restored. The trainer knows more than the ledger then
(`trimtab.agent.acknowledgement`): its overrides are adopted, beneath the agent's remedies and people's settings, until
a person changes them; what it no longer has is wanted no more; and if the two still differ, what is wanted goes out
under a generation above the trainer's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab.agent.acknowledgement import acknowledged, awaited
from trimtab.agent.changes import event
from trimtab.agent.config import AgentConfig
from trimtab.agent.detectors import DETECTORS, Detectors
from trimtab.agent.incidents import Moment, advanced, fingerprint, is_open
from trimtab.agent.operator import obeyed
from trimtab.agent.ordering import Waiting, joined, next_due, order_after
from trimtab.agent.policy import decided
from trimtab.agent.reading import Reading
from trimtab.agent.reference import reference_for
from trimtab.agent.regime import conditioned, is_over, mean_entropy, restarted
from trimtab.agent.resume import in_grace, worst_of
from trimtab.agent.run_state import Reported, RunState
from trimtab.agent.signals import DRAWN, ROLLOUTS, signals_of
from trimtab.agent.signals.step import Step
from trimtab.agent.state import Event, EventKind, OperatorAction, Verdict
from trimtab.agent.tracks import Track
from trimtab.agent.values import quick, replace
from trimtab.hooks.controls import CHECKPOINTS
from trimtab.hooks.records import Command, StepSummary

JUDGED = frozenset(signal for detector in DETECTORS.values() for signal in detector.SIGNALS)
"""Signals that have baselines: those that a detector asks for. The others are followed over one window."""


UNSEEN = Track()


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one record led to."""

    state: RunState
    events: tuple[Event, ...] = ()
    signals: Mapping[str, float | None] = field(default_factory=dict)
    """What was read from a summary of rank 0, whether it is judged or not; empty for any other record."""
    command: Command | None = None
    """What the trainer should be told; None when it already does what is wanted."""
    ignored: str = ""
    """Why the record was not judged; empty where it was."""


def advance(config: AgentConfig, state: RunState, record: StepSummary | OperatorAction) -> Outcome:
    """The state after one record, the audit rows, and the command that is due.

    Only rank 0 is judged, and only steps newer than the newest of their attempt: anything else leaves the state as it
    is. A step that is held back is judged with a later record, and its events are among those of that one.

    Raises:
        ValueError: the record is of another job.
        ControlError, OperatorError: a person's decision that cannot be taken; see `trimtab.agent.operator`.
    """
    if record.job != state.job:
        raise ValueError(f"job: the record is of {record.job!r}, the state of {state.job!r}")
    if isinstance(record, OperatorAction):
        state, rows = obeyed(state, record)
        if not state.behind:
            # From now on every answer says so, that to a summary which was sent twice too.
            state = replace(state, commanded=max(state.commanded, state.generation))
        return Outcome(state=state, events=rows, command=_command(state))
    if record.rank != 0:
        return Outcome(state=state, ignored=f"rank {record.rank}: only rank 0 is judged")
    reported = Step(record)
    signals = signals_of(reported)
    if record.attempt < state.attempt:
        return _outlived(state, record, signals)
    if record.attempt == state.attempt and record.step <= state.last_step:
        ignored = f"step {record.step}: late, attempt {state.attempt} is at step {state.last_step} already"
        return Outcome(state=state, signals=signals, command=_command(state), ignored=ignored)
    if any((each.attempt, each.step) == (record.attempt, record.step) for each in state.order.held):
        ignored = f"step {record.step}: is held back already"
        return Outcome(state=state, signals=signals, command=_command(state), ignored=ignored)
    waiting = joined(state.order.held, record)
    events: list[Event] = []
    while (due := next_due(state, waiting)) is not None:
        waiting = tuple(each for each in waiting if each is not due)
        step = reported if due is record else Step(due)
        state, more = _step(config, state, waiting, step, signals if due is record else signals_of(step))
        events += more
    state = replace(state, order=replace(state.order, held=waiting))
    return Outcome(state=state, events=tuple(events), signals=signals, command=_command(state))


def _step(
    config: AgentConfig, state: RunState, waiting: Waiting, step: Step, signals: Mapping[str, float | None]
) -> tuple[RunState, tuple[Event, ...]]:
    """The state after one step, others `waiting`."""
    summary, known = step.summary, state.reported
    state, started = _located(state, summary, waiting)
    state, reports = acknowledged(state, summary)
    state, overdue = awaited(state, config.policy.verify)
    state, reading = _read(config, state, step, signals, acted=known is not None and _acted(known, summary))
    state, verdicts = _judged(config, state, reading)
    state, policy = decided(config, state, reading)
    if _is_due(state):
        state = replace(state, commanded=state.generation)
    return state, (*started, *reports, *overdue, *verdicts, *policy)


def _acted(known: Reported, summary: StepSummary) -> bool:
    """Other overrides took effect; what is only kept, such as a checkpoint, changes nothing that is measured."""
    if known.generation == summary.generation:
        return False
    before, after = (
        {name: value for name, value in overrides.items() if name not in CHECKPOINTS}
        for overrides in (known.overrides, summary.overrides)
    )
    return before != after


def _outlived(state: RunState, summary: StepSummary, signals: Mapping[str, float | None]) -> Outcome:
    """A summary of an older attempt: kept in the ledger, never judged, and on record once an attempt."""
    ignored = f"attempt {summary.attempt}: attempt {state.attempt} is newer, and only the newest is judged"
    if state.older_reported:
        return Outcome(state=state, signals=signals, ignored=ignored)
    row = event(
        state,
        EventKind.OLDER_ATTEMPT,
        f"attempt {summary.attempt} still reports, at step {summary.step}, and is not judged: attempt {state.attempt} "
        f"is newer. If it is the one that counts, start it again with an attempt above {state.attempt}",
        older=summary.attempt,
        older_step=summary.step,
    )
    return Outcome(state=replace(state, older_reported=True), events=(row,), signals=signals, ignored=ignored)


def _located(state: RunState, summary: StepSummary, waiting: Waiting) -> tuple[RunState, tuple[Event, ...]]:
    """Step the clock; begin a new attempt, whose baselines, windows and detectors start afresh."""
    begins = state.last_step < 0 or summary.attempt > state.attempt
    state = replace(
        state,
        attempt=summary.attempt,
        last_step=summary.step,
        order=order_after(state, summary, waiting),
        older_reported=state.older_reported and not begins,
        steps=1 if begins else state.steps + 1,
        tick=state.tick + 1,
    )
    if not begins:
        return state, ()
    past = worst_of(state.tracks, state.past)
    state = replace(
        state,
        tracks={},
        past=past,
        detectors=Detectors(),
        verdicts={},
        regime_entropy=None,
        canary=None,
        history={},
    )
    return state, (event(state, EventKind.ATTEMPT_STARTED, f"attempt {summary.attempt} from step {summary.step}"),)


def _read(
    config: AgentConfig, state: RunState, step: Step, signals: Mapping[str, float | None], *, acted: bool
) -> tuple[RunState, Reading]:
    """Signals into their tracks; a new regime where the old one is over or the controls were changed."""
    summary = step.summary
    tracks, further = {}, summary.pass_index > 0
    for name, value in signals.items():
        if name in DRAWN:
            continue
        track = state.tracks.get(name, UNSEEN)
        if name in ROLLOUTS:  # what is said of them is said once: a further pass over them only repeats it
            tracks[name] = track.seen(None if further else value, config.window)
        else:
            tracks[name] = track.seen(value, config.window, summary.pass_index)
    entropy, begun_at = mean_entropy(tracks, config.window), state.regime_entropy
    held = is_open(state.incidents.get(fingerprint(state.job, "asymmetry")))
    if acted or (not held and is_over(config.regime, begun_at, entropy)):
        tracks, begun_at = restarted(tracks), None
    state = replace(state, tracks=tracks, regime_entropy=entropy if begun_at is None else begun_at)
    reference = reference_for(config.references, summary.applied)
    if reference is not None and is_over(config.regime, reference.entropy, entropy):
        reference = None
    return state, Reading(
        step=step,
        tracks=tracks,
        window=config.window,
        reference=reference,
        past=state.past,
        steps=state.steps,
    )


def _judged(config: AgentConfig, state: RunState, reading: Reading) -> tuple[RunState, tuple[Event, ...]]:
    """Verdicts, incidents, and then what the baselines learn from the step."""
    memory, verdicts = {}, {}
    events: list[Event] = []
    for name in DETECTORS:
        settings = getattr(config.detectors, name)
        memory[name], finding = getattr(state.detectors, name).update(settings, reading)
        verdicts[name] = finding.signed(name)
        events += _verdict_events(state, verdicts[name])
    state = replace(state, silences=tuple(each for each in state.silences if not each.is_over(state.tick)))
    now = Moment(
        job=state.job,
        attempt=state.attempt,
        step=state.last_step,
        tick=state.tick,
        silenced=frozenset(silence.fingerprint for silence in state.silences),
        grace=in_grace(config.incidents.grace, state.steps, state.tick),
        applied=None if reading.summary.log is not None else reading.summary.applied,
    )
    incidents, more = advanced(state.incidents, verdicts, config.incidents, now)
    # A baseline that is known stands still while its signal alarms. One that a new attempt or an action has made start
    # again is learnt all the same: nothing else could ever judge the signal, and its incident would stay open for good.
    frozen = {
        signal
        for incident in incidents.values()
        if is_open(incident)
        for signal in DETECTORS[incident.detector].SIGNALS
        if reading.is_anchored(signal)
    }
    passed = reading.summary.pass_index
    learnt = {
        name: state.tracks[name].learnt(config.baseline, conditioned(name, passed))
        for name in JUDGED
        if name in state.tracks and name not in frozen
    }
    tracks = {**state.tracks, **learnt}
    state = replace(state, tracks=tracks, detectors=Detectors(**memory), verdicts=verdicts, incidents=incidents)
    return state, (*events, *more)


def _verdict_events(state: RunState, after: Verdict) -> tuple[Event, ...]:
    before = state.verdicts.get(after.detector)
    was = None if before is None else before.state
    if was is after.state or (was is None and not after.state.alarming):
        return ()
    row = event(
        state,
        EventKind.VERDICT_CHANGED,
        after.message,
        detector=after.detector,
        before=None if was is None else was.value,
        after=after.state.value,
        score=after.score,
        evidence=dict(after.evidence),
    )
    return (row,)


def _is_due(state: RunState) -> bool:
    """There are overrides to be told of, and the trainer does not report exactly them."""
    return state.reported is not None and not state.behind and state.generation > 0 and not state.in_sync


def _command(state: RunState) -> Command | None:
    """The overrides as a level, where that is due."""
    if not _is_due(state):
        return None
    return Command(
        job=state.job,
        attempt=state.attempt,
        generation=state.generation,
        overrides=state.overrides,
        reason=state.reason,
        issuer=state.issuer,
    )
