from collections.abc import Iterator
from contextlib import suppress

import pytest
from alerting import START, Office, event, firing, resolved
from sqlalchemy import func, select

from trimtab.storage.alert import Alert, AlertKind, AlertPhase, Severity, fingerprint
from trimtab.storage.archive import Archive
from trimtab.storage.groups import ARCHIVED, alerts_of
from trimtab.storage.outbox import enqueue
from trimtab.storage.queries import job_id
from trimtab.storage.tables.alerts import OutboxRow
from trimtab.storage.values import NewEvent, Origin


@pytest.fixture
def office(database_url: str) -> Iterator[Office]:
    made = Office(database_url)
    yield made
    made.close()


def alerts(office: Office) -> list[Alert]:
    with office.database.read() as connection:
        return list(alerts_of(connection, job_id(connection, "run")))


def waiting(office: Office) -> int:
    with office.database.read() as connection:
        return connection.execute(select(func.count()).select_from(OutboxRow)).scalar_one()


def verdict(after: str, step: int = 20) -> NewEvent:
    return event("verdict_changed", "mean 0", step=step, detector="reward", before="warn", after=after, evidence={})


def test_an_incident_is_one_alert_from_its_beginning_to_its_end(office: Office) -> None:
    office.happen(firing())
    (begun,) = alerts(office)
    assert begun == Alert(
        job="run",
        fingerprint=fingerprint("run", AlertKind.INCIDENT, "reward"),
        kind=AlertKind.INCIDENT,
        name="reward",
        severity=Severity.WARNING,
        phase=AlertPhase.FIRING,
        summary="reward is wrong",
        attempt=1,
        step=10,
        starts_at=START,
        evidence={"mean": 0.25},
        notes={"likely cause": "the reward"},
    )
    office.clock.pass_(100)
    office.happen(resolved())
    (ended,) = alerts(office)
    assert (ended.phase, ended.summary, ended.step) == (AlertPhase.RESOLVED, "reward is right again", 40)
    assert (ended.starts_at, ended.ends_at) == (START, START + 100)
    office.clock.pass_(100)
    office.happen(firing(severity="critical", step=60))
    (again,) = alerts(office)
    assert (again.fingerprint, again.phase, again.severity) == (begun.fingerprint, AlertPhase.FIRING, Severity.CRITICAL)
    assert (again.starts_at, again.ends_at, again.worsened_at) == (START + 200, None, None)


def test_an_incident_that_worsens_says_since_when_and_nobody_looks_after_it_any_more(office: Office) -> None:
    office.happen(firing(), event("acknowledged", fingerprint="run/reward", issuer="ada"))
    assert alerts(office)[0].acknowledged_by == "ada"
    office.clock.pass_(30)
    office.happen(verdict("critical"))
    (worse,) = alerts(office)
    assert (worse.severity, worse.worsened_from, worse.worsened_at) == (
        Severity.CRITICAL,
        Severity.WARNING,
        START + 30,
    )
    assert (worse.starts_at, worse.summary, worse.step, worse.acknowledged_by) == (START, "mean 0", 20, None)
    office.happen(verdict("warn"))
    assert alerts(office) == [worse]


def test_a_silence_holds_until_it_is_told_again(office: Office) -> None:
    office.happen(firing(), event("silenced", fingerprint="run/reward", issuer="ada", steps=5))
    assert alerts(office)[0].silenced
    office.happen(firing(step=16))  # the silence is over, and it is still there
    assert not alerts(office)[0].silenced
    assert alerts(office)[0].starts_at == START
    office.happen(event("silenced", fingerprint="run/reward"), event("unsilenced", fingerprint="run/reward"))
    assert not alerts(office)[0].silenced


def test_what_never_fired_is_not_resolved_silenced_or_made_worse(office: Office) -> None:
    office.happen(resolved(), verdict("critical"), event("silenced", fingerprint="run/reward"))
    assert (alerts(office), waiting(office)) == ([], 0)


def test_only_what_changes_an_alert_leaves_its_job_in_the_outbox_once(office: Office) -> None:
    office.happen(firing(), firing("loss"), event("attempt_started"))
    assert waiting(office) == 1
    office.happen(firing())
    office.happen(event("controls_applied"))
    assert waiting(office) == 1
    office.happen(resolved())
    office.happen(resolved())
    assert waiting(office) == 2


def test_what_is_undone_with_its_transaction_was_never_told(office: Office) -> None:
    office.happen()
    with suppress(ZeroDivisionError), office.database.write() as connection:
        enqueue(connection, job_id(connection, "run"), "run", [firing()], START)
        raise ZeroDivisionError
    assert (alerts(office), waiting(office)) == ([], 0)


def test_nothing_fires_in_a_job_that_is_archived(office: Office) -> None:
    office.happen(firing())
    office.clock.pass_(50)
    archive = Archive(office.database)
    archive.put_away("run", at=office.clock(), origin=Origin(), issuer="ada", reason="it is done")
    (one,) = alerts(office)
    assert (one.phase, one.ends_at, one.summary) == (AlertPhase.RESOLVED, START + 50, ARCHIVED)
    archive.bring_back("run", at=office.clock(), origin=Origin(), issuer="ada", reason="it is not")
    assert alerts(office)[0].phase is AlertPhase.FIRING
    assert waiting(office) == 3
