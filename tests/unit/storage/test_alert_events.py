"""What people are told of: from the agent's own events."""

import json
from typing import Any

import pytest
from agent_runs import Plant
from agent_sessions import Session
from alerting import event

from trimtab.agent.state import Event, EventKind, Mode, OperatorAction, OperatorVerb
from trimtab.storage.alert import AlertKind, Severity, fingerprint
from trimtab.storage.alert_events import Acknowledged, Change, Fired, Muted, Resolved, Worsened, change_of
from trimtab.storage.codec import EVENT
from trimtab.storage.values import NewEvent


def stored(one: Event) -> NewEvent:
    plain = json.loads(EVENT.encode(one))
    return NewEvent(
        kind=one.kind, attempt=one.attempt, step=one.step, message=one.message, detail=json.dumps(plain["detail"])
    )


def told(session: Session) -> list[Change]:
    found = (change_of("run", stored(one)) for one in session.events)
    return [one for one in found if one is not None]


def operated(verb: OperatorVerb, **fields: Any) -> OperatorAction:
    return OperatorAction(job="run", verb=verb, issuer="ada", reason="because", **fields)


def test_a_run_that_is_saved_is_told_with_its_remedy_and_what_became_of_it() -> None:
    session = Session(Plant(seed=0, noisy_from=10)).run(200)
    changes = told(session)
    fired = [one for one in changes if isinstance(one, Fired) and one.kind is AlertKind.INCIDENT]
    first = next(one for one in fired if one.identity == "mismatch")
    assert first.summary
    assert first.evidence
    assert set(first.notes) >= {"likely cause", "proposed"}
    notices = [one for one in changes if one.kind is AlertKind.CHANGE]
    assert notices
    assert all(isinstance(one, Fired) for one in notices)
    assert any(one.identity.startswith("changed") and one.summary.startswith("applied: ") for one in notices)
    assert any(one.identity.startswith("judged") for one in notices)
    assert not any(one.kind is AlertKind.PROPOSAL for one in changes)  # in auto nothing waits for anybody


@pytest.mark.parametrize("verb", [OperatorVerb.APPROVE, OperatorVerb.REJECT])
def test_a_proposal_is_told_while_it_waits_for_an_answer(verb: OperatorVerb) -> None:
    session = Session(Plant(seed=0, noisy_from=10), Mode.APPROVE)
    while not session.state.proposals:
        session.run(1)
    (proposal,) = session.state.proposals
    session.take(operated(verb, proposal=proposal.id))
    asked, answered = (one for one in told(session) if one.kind is AlertKind.PROPOSAL)
    assert isinstance(asked, Fired)
    assert (asked.identity, asked.name, asked.severity) == (str(proposal.id), proposal.remedy, Severity.WARNING)
    assert asked.summary.startswith(f"proposal {proposal.id} waits for an answer: apply ")
    assert json.loads(asked.notes["overrides"]) == proposal.overrides
    word = {OperatorVerb.APPROVE: "approved", OperatorVerb.REJECT: "rejected"}[verb]
    assert answered == Resolved(
        kind=AlertKind.PROPOSAL, identity=str(proposal.id), summary=f"proposal {proposal.id} was {word} by ada: because"
    )


def test_advice_waits_for_nobody() -> None:
    session = Session(Plant(seed=0, noisy_from=10), Mode.ADVISE).run(100)
    assert session.state.proposals
    assert not any(one.kind is AlertKind.PROPOSAL for one in told(session))


def test_a_kill_is_told_once_and_a_persons_setting_is_not() -> None:
    session = Session(Plant(seed=0)).run(10)
    session.take(operated(OperatorVerb.PATCH_CONTROLS, overrides={"centering": True}))
    assert not [one for one in told(session) if one.kind is AlertKind.CHANGE]
    session.take(operated(OperatorVerb.KILL))
    (killed,) = (one for one in told(session) if one.kind is AlertKind.CHANGE)
    assert isinstance(killed, Fired)
    assert killed.summary == "ada used the kill switch: because"


def test_a_silence_and_its_end_and_an_acknowledgement_are_about_one_incident() -> None:
    session = Session(Plant(seed=0, noisy_from=10))
    while not any(incident.told for incident in session.state.incidents.values()):
        session.run(1)
    target = next(incident.detector for incident in session.state.incidents.values() if incident.told)
    for verb in (OperatorVerb.ACKNOWLEDGE, OperatorVerb.SILENCE, OperatorVerb.UNSILENCE):
        session.take(operated(verb, target=target))
    about: dict[str, Any] = {"kind": AlertKind.INCIDENT, "identity": target}
    assert told(session)[-3:] == [
        Acknowledged(by="ada", **about),
        Muted(silenced=True, **about),
        Muted(silenced=False, **about),
    ]


def test_an_incident_is_as_bad_as_its_worst_verdict() -> None:
    worse = event(
        "verdict_changed", "mean 0", detector="reward", before="warn", after="critical", evidence={"mean": 0.0}
    )
    assert change_of("run", worse) == Worsened(
        kind=AlertKind.INCIDENT,
        identity="reward",
        severity=Severity.CRITICAL,
        summary="mean 0",
        evidence={"mean": 0.0},
    )
    for after in ("ok", "warn", "inconclusive"):
        assert change_of("run", event("verdict_changed", detector="reward", before="critical", after=after)) is None


def test_a_rollback_takes_the_place_of_the_judgement_that_it_follows_from() -> None:
    harmful = change_of("run", event("change_harmful", "it did harm", generation=5, remedy="", evidence={}))
    back = change_of("run", event("rolled_back", "it did harm", undone=5, generation=6))
    assert isinstance(harmful, Fired)
    assert isinstance(back, Fired)
    assert (harmful.kind, harmful.identity) == (back.kind, back.identity) == (AlertKind.CHANGE, "judged 5")
    assert back.summary == "rolled back: it did harm"


@pytest.mark.parametrize("kind", ["locked_out", "restored"])
def test_a_lock_out_lasts_until_the_mode_is_set(kind: str) -> None:
    locked = change_of("run", event(kind, "two changes were taken back", issuer="ada", wanted={}))
    assert isinstance(locked, Fired)
    unlocked = change_of("run", event("mode_changed", "looked at it", after="auto", before="auto", issuer="ada"))
    assert unlocked == Resolved(
        kind=AlertKind.LOCKOUT, identity="", summary="the mode was set to auto by ada: looked at it"
    )
    assert (locked.kind, locked.identity) == (unlocked.kind, unlocked.identity)


def test_what_is_explained_or_silenced_or_only_on_record_is_not_told() -> None:
    quiet = {
        EventKind.INCIDENT_PENDING,
        EventKind.INCIDENT_INHIBITED,
        EventKind.RESUME_TRANSIENT,
        EventKind.ATTEMPT_STARTED,
        EventKind.CONTROLS_APPLIED,
        EventKind.CHECKPOINT_PINNED,
        EventKind.REFUSED,
    }
    assert {change_of("run", event(kind)) for kind in quiet} == {None}
    assert change_of("run", event("a_kind_of_tomorrow")) is None


def test_a_fingerprint_is_of_the_job_and_what_is_wrong_alone() -> None:
    first = fingerprint("run", AlertKind.INCIDENT, "reward")
    assert first == fingerprint("run", AlertKind.INCIDENT, "reward")
    others = [
        ("run2", AlertKind.INCIDENT, "reward"),
        ("run", AlertKind.CHANGE, "reward"),
        ("run", AlertKind.INCIDENT, "x"),
    ]
    assert len({first, *(fingerprint(*other) for other in others)}) == 4
    assert len(first) == 32
