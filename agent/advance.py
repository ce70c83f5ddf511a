"""The whole brain: a fold of one record into the state of a job.

Replaying a ledger gives the same states, events and commands; a summary that was seen before changes nothing; a
command is a level, and rides on every reply until the trainer reports it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trimtab.agent.changes import event
from trimtab.agent.config import AgentConfig
from trimtab.agent.detectors import DETECTORS, Detectors
from trimtab.agent.incidents import advanced, fingerprint, is_open
from trimtab.agent.operator import obeyed
from trimtab.agent.policy import decided
from trimtab.agent.reading import Reading
from trimtab.agent.regime import is_over, mean_entropy, restarted
from trimtab.agent.run_state import Reported, RunState
from trimtab.agent.signals import read_all
from trimtab.agent.state import Event, EventKind, OperatorAction, Verdict
from trimtab.agent.tracks import Track
from trimtab.hooks.controls import CONTROL_NAMES
from trimtab.hooks.records import Command, StepSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one record led to."""

    state: RunState
    events: tuple[Event, ...] = ()
    command: Command | None = None
    """What the trainer should be told; None when it already does what is wanted."""


def advance(config: AgentConfig, state: RunState, record: StepSummary | OperatorAction) -> Outcome:
    """The state after one record, the audit rows, and the command that is due.

    Only rank 0 is judged, and only steps newer than the newest of their attempt: anything else leaves the state as it
    is.

    Raises:
        ValueError: the record is of another job.
        ControlError, OperatorError: a person's decision that cannot be taken; see `trimtab.agent.operator`.
    """
    if record.job != state.job:
        raise ValueError(f"job: the record is of {record.job!r}, the state of {state.job!r}")
    if isinstance(record, OperatorAction):
        state, events = obeyed(state, record)
        return Outcome(state=state, events=events, command=_command(state))
    if record.attempt < state.attempt or record.rank != 0:
        return Outcome(state=state)
    if record.attempt == state.attempt and record.step <= state.last_step:
        return Outcome(state=state, command=_command(state))
    known = state.reported
    state, started = _located(state, record)
    state, reports = _acknowledged(state, record)
    state, reading = _read(config, state, record, acted=known is not None and known.generation != record.generation)
    state, verdicts = _judged(config, state, reading)
    state, policy = decided(config, state, reading)
    return Outcome(state=state, events=(*started, *reports, *verdicts, *policy), command=_command(state))


def _located(state: RunState, summary: StepSummary) -> tuple[RunState, tuple[Event, ...]]:
    """Step the clock; begin a new attempt, whose baselines, windows and detectors start afresh."""
    begins = state.last_step < 0 or summary.attempt > state.attempt
    state = replace(
        state,
        attempt=summary.attempt,
        last_step=summary.step,
        steps=1 if begins else state.steps + 1,
        tick=state.tick + 1,
    )
    if not begins:
        return state, ()
    state = replace(state, tracks={}, detectors=Detectors(), verdicts={}, regime_entropy=None)
    return state, (event(state, EventKind.ATTEMPT_STARTED, f"attempt {summary.attempt} from step {summary.step}"),)


def _acknowledged(state: RunState, summary: StepSummary) -> tuple[RunState, tuple[Event, ...]]:
    """Take in what the trainer says it is doing."""
    before = state.reported
    reported = Reported(
        generation=summary.generation,
        applied=summary.applied,
        capabilities=summary.capabilities,
        refusals=summary.refusals,
    )
    events: list[Event] = []
    wanted = state.overrides
    if before is not None and before.applied != summary.applied:
        own = {
            name: [getattr(before.applied, name), getattr(summary.applied, name)]
            for name in CONTROL_NAMES
            if name not in wanted and getattr(before.applied, name) != getattr(summary.applied, name)
        }
        if own and before.generation == summary.generation:
            what = ", ".join(f"{name} {old!r} -> {new!r}" for name, (old, new) in own.items())
            events.append(event(state, EventKind.RUN_CHANGED_CONTROLS, f"the run changed {what}", changed=own))
    state = replace(state, reported=reported)
    if summary.generation > state.generation:
        # The trainer obeyed an agent that knew more (a restored old database): generations never go back.
        behind = any(getattr(summary.applied, name) != value for name, value in wanted.items())
        state = replace(state, generation=summary.generation + behind)
    elif 0 < summary.generation == state.generation and (before is None or before.generation != summary.generation):
        done = f"generation {summary.generation} is in effect"
        events.append(event(state, EventKind.CONTROLS_APPLIED, done, generation=summary.generation))
    rungs = tuple(
        replace(rung, applied_tick=state.tick)
        if rung.applied_tick is None
        and summary.generation >= rung.generation
        and all(getattr(summary.applied, name) == value for name, value in rung.overrides.items())
        else rung
        for rung in state.ladder.rungs
    )
    return replace(state, ladder=replace(state.ladder, rungs=rungs)), tuple(events)


def _read(config: AgentConfig, state: RunState, summary: StepSummary, *, acted: bool) -> tuple[RunState, Reading]:
    """Signals into their tracks; a new regime where the old one is over or the controls were changed."""
    tracks = {
        name: state.tracks.get(name, Track()).seen(value, config.window) for name, value in read_all(summary).items()
    }
    entropy, begun_at = mean_entropy(tracks, config.window), state.regime_entropy
    held = is_open(state.incidents.get(fingerprint(state.job, "asymmetry")))
    if acted or (not held and is_over(config.regime, begun_at, entropy)):
        tracks, begun_at = restarted(tracks), None
    state = replace(state, tracks=tracks, regime_entropy=entropy if begun_at is None else begun_at)
    return state, Reading(summary=summary, tracks=tracks, window=config.window)


def _judged(config: AgentConfig, state: RunState, reading: Reading) -> tuple[RunState, tuple[Event, ...]]:
    """Verdicts, incidents, and then what the baselines learn from the step."""
    memory, verdicts, events = {}, {}, []
    for name in DETECTORS:
        settings = getattr(config.detectors, name)
        memory[name], finding = getattr(state.detectors, name).update(settings, reading)
        verdicts[name] = finding.signed(name)
        events += _verdict_events(state, state.verdicts.get(name), verdicts[name])
    incidents, more = advanced(
        state.incidents,
        verdicts,
        config.incidents,
        job=state.job,
        attempt=state.attempt,
        step=state.last_step,
    )
    frozen = {
        signal
        for name, detector in DETECTORS.items()
        if is_open(incidents.get(fingerprint(state.job, name)))
        for signal in detector.SIGNALS
    }
    learnt = {name: track if name in frozen else track.learnt(config.baseline) for name, track in state.tracks.items()}
    state = replace(state, tracks=learnt, detectors=Detectors(**memory), verdicts=verdicts, incidents=incidents)
    return state, (*events, *more)


def _verdict_events(state: RunState, before: Verdict | None, after: Verdict) -> list[Event]:
    was = None if before is None else before.state
    if was is after.state or (was is None and not after.state.alarming):
        return []
    return [
        event(
            state,
            EventKind.VERDICT_CHANGED,
            after.message,
            detector=after.detector,
            before=None if was is None else was.value,
            after=after.state.value,
            score=after.score,
            evidence=dict(after.evidence),
        )
    ]


def _command(state: RunState) -> Command | None:
    """The overrides as a level, unless the trainer reports exactly them."""
    reported, wanted = state.reported, state.overrides
    if reported is None or state.generation == 0:
        return None
    done = reported.generation == state.generation and all(
        getattr(reported.applied, name) == value for name, value in wanted.items()
    )
    if done or not state.issuer:  # a generation taken over from the trainer says nothing of our own
        return None
    return Command(
        job=state.job,
        attempt=state.attempt,
        generation=state.generation,
        overrides=wanted,
        reason=state.reason,
        issuer=state.issuer,
    )
