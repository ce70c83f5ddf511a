from dataclasses import replace

import pytest
from alerting import PROMPT, START, alert, due, endpoint, over

from trimtab.api.notify.grouping import NOTICE_LIFE_S, Decision, decided, needs_update
from trimtab.api.notify.notification import Reason
from trimtab.storage.alert import AlertKind, Severity
from trimtab.storage.groups import Due
from trimtab.storage.told import Told

NOW = START + 1000
MINUTE = 60.0


def knowing(*keys: int, severity: Severity = Severity.WARNING) -> Told:
    return Told(firing={str(key): severity for key in keys})


def fires(*keys: int, severity: Severity = Severity.WARNING) -> dict[str, Severity]:
    return {str(key): severity for key in keys}


# The table of Alertmanager 0.34, notify/notify_test.go, TestDedupStageNeedsUpdate: what was told, minutes ago, what
# fires, what was resolved, the interval of reminders in minutes, whether resolutions are sent, and what comes of it.
TABLE = [
    (None, None, (2, 3, 4), (), 0, False, True),
    (None, None, (), (2, 3, 4), 0, False, False),
    ((1, 2, 3), 1, (2, 3, 4), (), 10, False, True),
    ((1, 2, 3), None, (1, 2, 3), (), 0, False, True),
    ((1, 2, 3), 9, (1, 2, 3), (), 10, False, False),
    ((1, 2, 3), 11, (1, 2, 3), (), 10, False, True),
    ((), 11, (), (3, 4, 5), 10, True, False),
    ((1, 2), 9, (1,), (2, 3), 10, False, False),
    ((1, 2), 9, (1,), (2, 3), 10, True, True),
    ((1, 2), 9, (), (1, 2, 3), 10, False, True),
    ((1, 2), 9, (), (1, 2, 3), 10, True, True),
]


@pytest.mark.parametrize(("told", "ago", "firing", "resolved", "repeat", "send_resolved", "expected"), TABLE)
def test_a_group_is_told_when_alertmanager_would_tell_it(
    told: tuple[int, ...] | None,
    ago: int | None,
    firing: tuple[int, ...],
    resolved: tuple[int, ...],
    repeat: int,
    send_resolved: bool,
    expected: bool,
) -> None:
    reason = needs_update(
        Told() if told is None else knowing(*told),
        None if ago is None else NOW - ago * MINUTE,
        fires(*firing),
        [str(key) for key in resolved],
        send_resolved=send_resolved,
        repeat_interval=repeat * MINUTE,
        now=NOW,
    )
    assert (reason is not Reason.NONE) is expected


def test_every_reason_has_its_case() -> None:
    def reason(told: Told, firing: dict[str, Severity], resolved: tuple[str, ...] = ()) -> Reason:
        return needs_update(told, NOW - 30, firing, resolved, send_resolved=True, repeat_interval=MINUTE * 10, now=NOW)

    assert reason(Told(), fires(1)) is Reason.FIRST
    assert reason(knowing(1), fires(1, 2)) is Reason.NEW
    assert reason(knowing(1), fires(1, severity=Severity.CRITICAL)) is Reason.NEW
    assert reason(knowing(1, severity=Severity.CRITICAL), fires(1)) is Reason.NONE
    assert reason(knowing(1, 2), fires(1), ("2",)) is Reason.SOME_RESOLVED
    assert reason(knowing(1), {}, ("1",)) is Reason.ALL_RESOLVED
    assert reason(knowing(1), {}) is Reason.NONE


def decide(group: Due, now: float = NOW, *, acknowledges: bool = False, always_repeats: bool = False) -> Decision:
    return decided(group, now, acknowledges=acknowledges, always_repeats=always_repeats)


def test_what_was_resolved_before_it_was_told_is_not_told() -> None:
    found = decide(due(over(alert())))
    assert (found.reason, found.firing, found.resolved, found.due_at) == (Reason.NONE, (), (), None)
    assert found.told == Told()


def test_a_resolution_is_told_once_for_what_was_told_to_fire() -> None:
    one = alert()
    first = decide(due(one))
    assert (first.reason, first.firing, first.news) == (Reason.FIRST, (one,), {one.fingerprint})
    assert first.due_at == NOW + PROMPT.repeat_interval
    second = decide(due(over(one), told=first.told, told_at=NOW), NOW + 60)
    assert (second.reason, second.firing, second.resolved) == (Reason.ALL_RESOLVED, (), (over(one),))
    assert (second.told, second.due_at) == (Told(), None)
    assert decide(due(over(one), told=second.told, told_at=NOW + 60), NOW + 120).reason is Reason.NONE


def test_a_message_holds_everything_that_fires_the_worst_first() -> None:
    old, mild, worst = alert("a"), alert("b", starts_at=START + 5), alert("c", severity=Severity.CRITICAL)
    told = Told(firing={old.fingerprint: Severity.WARNING})
    found = decide(due(old, mild, worst, told=told, told_at=START))
    assert found.firing == (worst, old, mild)
    assert found.news == {mild.fingerprint, worst.fingerprint}


def test_what_fell_away_and_came_back_between_two_messages_is_not_told() -> None:
    one = alert(starts_at=START + 900)  # a new beginning of what was told before
    told = Told(firing={one.fingerprint: Severity.WARNING})
    assert decide(due(one, told=told, told_at=START + 500)).reason is Reason.NONE


def test_worse_is_news_and_milder_is_not() -> None:
    one = alert(severity=Severity.CRITICAL)
    found = decide(due(one, told=Told(firing={one.fingerprint: Severity.WARNING}), told_at=START + 900))
    assert (found.reason, found.news) == (Reason.NEW, {one.fingerprint})
    milder = decide(due(alert(), told=found.told, told_at=NOW), NOW + 60)
    assert milder.reason is Reason.NONE
    assert milder.told.firing == {one.fingerprint: Severity.WARNING}  # if it worsens once more, that is news again


def test_reminders_come_in_their_interval_and_stop_with_the_job() -> None:
    one = alert()
    group = due(one, told=Told(firing={one.fingerprint: Severity.WARNING}), told_at=START)
    assert decide(group, START + 3599).reason is Reason.NONE
    assert decide(group, START + 3600).reason is Reason.REPEAT
    silent = replace(group, reported_at=START - 1)
    found = decide(silent, START + 3600)
    assert (found.reason, found.due_at) == (Reason.NONE, START + 7200)
    assert decide(silent, START + 3600, always_repeats=True).reason is Reason.REPEAT
    never = endpoint(timing=replace(PROMPT, repeat_interval=None))
    assert decide(replace(group, endpoint=never), START + 1e6).reason is Reason.NONE


def test_nobody_is_reminded_of_what_somebody_looks_after() -> None:
    one = alert(acknowledged_by="ada")
    group = due(one, told=Told(firing={one.fingerprint: Severity.WARNING}), told_at=START)
    assert decide(group, START + 3600).reason is Reason.NONE
    both = due(one, alert("loss"), told=Told(firing={**group.told.firing, alert("loss").fingerprint: Severity.WARNING}))
    found = decide(replace(both, told_at=START), START + 3600)
    assert (found.reason, len(found.firing)) == (Reason.REPEAT, 2)
    assert decide(replace(group, alerts=(over(one),)), START + 3600).reason is Reason.ALL_RESOLVED


def test_who_can_be_told_that_somebody_looks_after_it_is_told_once() -> None:
    one = alert(acknowledged_by="ada")
    group = due(one, told=Told(firing={one.fingerprint: Severity.WARNING}), told_at=START)
    found = decide(group, acknowledges=True)
    assert (found.reason, found.news) == (Reason.ACKNOWLEDGED, {one.fingerprint})
    assert decide(replace(group, told=found.told, told_at=NOW), NOW + 60, acknowledges=True).reason is Reason.NONE
    assert decide(group).reason is Reason.NONE


def test_a_silence_stops_reminders_but_not_the_resolution() -> None:
    one = alert(silenced=True)
    told = Told(firing={one.fingerprint: Severity.WARNING})
    muted = decide(due(one, told=told, told_at=START), START + 3600)
    assert (muted.reason, muted.told) == (Reason.NONE, Told(muted=frozenset({one.fingerprint})))
    again = decide(due(replace(one, silenced=False), told=muted.told, told_at=START), START + 3700)
    assert (again.reason, again.news) == (Reason.FIRST, {one.fingerprint})
    found = decide(due(over(one), told=muted.told, told_at=START), START + 3700)
    assert (found.reason, found.resolved) == (Reason.ALL_RESOLVED, (over(one),))


def test_what_is_silenced_from_the_start_is_never_told() -> None:
    one = alert(silenced=True)
    found = decide(due(one))
    assert (found.reason, found.told) == (Reason.NONE, Told())
    assert decide(due(over(one), told=found.told)).reason is Reason.NONE


def test_an_endpoint_is_told_of_its_jobs_kinds_and_severities_alone() -> None:
    one = alert()
    assert decide(due(one, endpoint=endpoint(jobs=("r*", "x")))).reason is Reason.FIRST
    assert decide(due(one, endpoint=endpoint(jobs=("x*",)))).reason is Reason.NONE
    assert decide(due(one, endpoint=endpoint(severity=Severity.CRITICAL))).reason is Reason.NONE
    assert decide(due(one, endpoint=endpoint(kinds=(AlertKind.LOCKOUT,)))).reason is Reason.NONE
    told = Told(firing={one.fingerprint: Severity.WARNING})
    found = decide(due(over(one), endpoint=endpoint(jobs=("x*",)), told=told, told_at=START))
    assert found.reason is Reason.ALL_RESOLVED  # it was told that it fires, before somebody narrowed its filter


def test_without_resolutions_nothing_is_said_of_them_and_a_new_beginning_is_news() -> None:
    one, quiet = alert(), endpoint(send_resolved=False)
    told = Told(firing={one.fingerprint: Severity.WARNING})
    found = decide(due(over(one), endpoint=quiet, told=told, told_at=START))
    assert (found.firing, found.resolved, found.told) == ((), (), Told())
    assert decide(due(one, endpoint=quiet, told=found.told, told_at=NOW), NOW + 60).reason is Reason.FIRST


def test_a_resolution_that_is_still_on_its_way_is_in_the_next_message_too() -> None:
    gone, new = over(alert("a")), alert("b")
    found = decide(due(gone, new, undelivered=frozenset({gone.fingerprint}), told_at=START))
    assert (found.reason, found.firing, found.resolved, found.news) == (
        Reason.FIRST,
        (new,),
        (gone,),
        {new.fingerprint},
    )
    assert decide(due(gone, undelivered=frozenset({gone.fingerprint}), told_at=START)).reason is Reason.NONE


def test_a_notice_is_told_once_while_it_is_news(caplog: pytest.LogCaptureFixture) -> None:
    notice = alert("centering", kind=AlertKind.CHANGE, severity=Severity.INFO)
    found = decide(due(notice))
    assert (found.reason, found.notices, found.due_at) == (Reason.NONE, (notice,), None)
    assert decide(due(notice, told=found.told), NOW + 60).notices == ()
    assert decide(due(told=found.told)).told.noticed == frozenset()
    assert caplog.messages == []
    late = decide(due(notice), START + PROMPT.group_interval + NOTICE_LIFE_S + 1)
    assert (late.notices, late.told.noticed) == ((), {notice.fingerprint}), "which is said once"
    assert caplog.messages == [
        "webhook team is not told of job run: centering (centering is wrong): it is 3661 s old",
    ]
    assert decide(due(notice, endpoint=endpoint(created_at=START + 1))).notices == ()


def test_a_notice_outlives_the_interval_for_which_it_has_to_wait(caplog: pytest.LogCaptureFixture) -> None:
    notice = alert("centering", kind=AlertKind.CHANGE, severity=Severity.INFO)
    slow = endpoint(timing=replace(PROMPT, group_wait=3600.0, group_interval=86400.0, repeat_interval=None))
    assert decide(due(notice, endpoint=slow, told_at=START - 1), START + 90000.0).notices == (notice,)
    assert caplog.messages == []


def test_what_is_told_survives_its_way_into_the_database() -> None:
    told = Told(
        firing={"a": Severity.CRITICAL},
        muted=frozenset({"b"}),
        acknowledged=frozenset({"a"}),
        noticed=frozenset({"c", "d"}),
    )
    assert Told.decoded(told.encoded()) == told
