"""Incidents: exact phases for exact verdicts."""

from dataclasses import replace

import pytest

from trimtab.agent.detectors import DETECTORS
from trimtab.agent.incidents import IncidentSettings, Moment, advanced, fingerprint
from trimtab.agent.state import Acknowledgement, Incident, Phase, State, Verdict

SETTINGS = IncidentSettings(for_steps=1, keep_firing_for=3, group_interval=4, flap_steps=10)
LETTERS = {
    "o": State.OK,
    "w": State.WARN,
    "c": State.CRITICAL,
    "?": State.INCONCLUSIVE,
    "-": State.NOT_OBSERVED,
}


def played(
    settings: IncidentSettings = SETTINGS, silenced: dict[int, set[str]] | None = None, grace: int = 0, **series: str
) -> tuple[list[dict[str, Incident]], list[tuple[int, str, str]]]:
    """Incidents after each step, and (step, detector, event), for verdicts given as letters, one a step."""
    incidents: dict[str, Incident] = {}
    history, rows = [], []
    for step, letters in enumerate(zip(*series.values(), strict=True)):
        verdicts = {
            name: Verdict(detector=name, state=LETTERS[letter], message=f"{name} {step}")
            for name, letter in zip(series, letters, strict=True)
        }
        quiet = {fingerprint("j", name) for name in (silenced or {}).get(step, set())}
        now = Moment(job="j", attempt=1, step=step, tick=step + 1, silenced=quiet, grace=step < grace)
        incidents, events = advanced(incidents, verdicts, settings, now)
        history.append(incidents)
        rows += [(e.step, e.detail["detector"], e.kind.value.removeprefix("incident_")) for e in events]
    return history, rows


@pytest.mark.parametrize(
    ("letters", "events"),
    [
        ("ooo", []),
        ("wo", [(0, "pending")]),
        ("ww", [(0, "pending"), (1, "firing")]),
        ("c", [(0, "firing")]),
        ("wc", [(0, "pending"), (1, "firing")]),
        ("wow", [(0, "pending"), (2, "pending")]),
        ("cooo", [(0, "firing"), (3, "resolved")]),
        ("coowooo", [(0, "firing"), (6, "resolved")]),
        ("co??oo", [(0, "firing"), (5, "resolved")]),
        ("c---", [(0, "firing")]),
        ("cooocoooo", [(0, "firing"), (3, "resolved"), (4, "firing"), (8, "resolved")]),
    ],
)
def test_phases(letters: str, events: list[tuple[int, str]]) -> None:
    _, rows = played(mismatch=letters)
    assert [(step, kind) for step, _, kind in rows] == events


def test_what_comes_back_after_it_was_resolved_is_the_same_incident_again() -> None:
    history, rows = played(mismatch="cooocooo")
    assert [kind for _, _, kind in rows] == ["firing", "resolved", "firing"]
    incident = history[-1]["j/mismatch"]
    assert (incident.occurrences, incident.since_step) == (2, 4)
    assert {name for incidents in history for name in incidents} == {"j/mismatch"}


def test_flapping_is_told_once_with_its_rate_and_resolves_after_a_longer_calm() -> None:
    history, rows = played(nonfinite="coooc" + "oooo")
    assert [(step, kind) for step, _, kind in rows] == [(0, "firing"), (4, "flapping"), (8, "resolved")]
    incident = history[4]["j/nonfinite"]
    assert (incident.occurrences, incident.since_step, incident.flap_rate) == (2, 0, 0.2)
    assert incident.message == "flapping, 2 times within 10 steps: nonfinite 4"


def test_onsets_long_ago_are_no_flapping() -> None:
    history, _ = played(nonfinite="c" + "o" * 10 + "c")
    assert history[-1]["j/nonfinite"].flap_rate is None
    assert history[-1]["j/nonfinite"].occurrences == 2


def test_broken_inputs_do_not_resolve_within_the_group_interval() -> None:
    _, rows = played(nonfinite="coooo")
    assert rows == [(0, "nonfinite", "firing"), (4, "nonfinite", "resolved")]


def test_a_pending_incident_that_stops_leaves_the_count_of_firings() -> None:
    history, _ = played(garbage="wwooowo")
    assert history[-1]["j/garbage"].phase is Phase.RESOLVED
    assert history[-1]["j/garbage"].occurrences == 1


def test_severity_is_the_worst_so_far_and_evidence_the_latest() -> None:
    history, _ = played(reward="cww")
    incident = history[-1]["j/reward"]
    assert incident.severity is State.CRITICAL
    assert incident.message == "reward 2"
    assert (incident.since_step, incident.firing_step, incident.last_alarm_step) == (0, 0, 2)


def test_a_firing_cause_inhibits_its_consequences_in_the_same_step_and_until_it_resolves() -> None:
    _, rows = played(reward="occcccc", nonfinite="occoooo")
    assert rows == [
        (1, "nonfinite", "firing"),
        (1, "reward", "inhibited"),
        (5, "nonfinite", "resolved"),
        (5, "reward", "firing"),
    ]


def test_an_incident_that_was_open_before_its_cause_goes_on() -> None:
    history, rows = played(reward="ccc", nonfinite="occ")
    assert history[-1]["j/reward"].last_alarm_step == 2
    assert history[-1]["j/reward"].cause is None
    assert rows == [(0, "reward", "firing"), (1, "nonfinite", "firing")]


def test_a_warning_inhibits_nothing() -> None:
    _, rows = played(nonfinite="wwww", reward="oocc")
    assert (2, "reward", "firing") in rows


@pytest.mark.parametrize("name", DETECTORS)
def test_broken_inputs_explain_whatever_fires_with_them(name: str) -> None:
    for cause in {"nonfinite", "tokens"} - {name}:
        history, rows = played(**{cause: "occ", name: "ooc"})
        assert history[-1][f"j/{name}"].phase is Phase.FIRING
        assert history[-1][f"j/{name}"].cause == f"j/{cause}"
        assert history[-1][f"j/{name}"].likely_cause == f"j/{cause}, which explains it"
        assert rows == [(1, cause, "firing"), (2, name, "inhibited")]


@pytest.mark.parametrize(
    ("root", "other", "explained"),
    [
        ("mismatch", "reward", True),
        ("mismatch", "asymmetry", True),
        ("mismatch", "retained", True),
        ("reward", "garbage", True),
        ("reward", "mismatch", False),
        ("retained", "reward", False),
    ],
)
def test_causes_explain_what_comes_after_them_in_a_failure(root: str, other: str, explained: bool) -> None:
    history, _ = played(**{root: "ccc", other: "occ"})
    assert (history[-1][f"j/{other}"].cause == f"j/{root}") is explained


def test_nothing_is_explained_by_what_is_milder() -> None:
    _, rows = played(mismatch="www", reward="ooc")
    assert (2, "reward", "firing") in rows


def test_a_silenced_incident_is_there_and_not_told_until_the_silence_is_over() -> None:
    quiet = {step: {"reward"} for step in range(3)}
    history, rows = played(silenced=quiet, reward="ccccc")
    assert rows == [(0, "reward", "inhibited"), (3, "reward", "firing")]
    assert [incidents["j/reward"].silenced for incidents in history] == [True, True, True, False, False]
    assert history[0]["j/reward"].phase is Phase.FIRING


def test_what_alarms_in_the_grace_after_a_resume_is_a_transient_unless_it_stays() -> None:
    _, passed = played(grace=4, reward="cccoooo")
    assert passed == [(0, "reward", "resume_transient")]
    history, stayed = played(grace=4, reward="ccccc")
    assert stayed == [(0, "reward", "resume_transient"), (4, "reward", "firing")]
    assert history[0]["j/reward"].message == "resume transient: reward 0"


@pytest.mark.parametrize("name", ["nonfinite", "tokens"])
def test_broken_inputs_are_no_transient(name: str) -> None:
    assert played(grace=4, **{name: "c"})[1] == [(0, name, "firing")]


@pytest.mark.parametrize("name", DETECTORS)
def test_every_incident_says_its_likely_cause_what_to_do_and_what_it_costs(name: str) -> None:
    incident = played(**{name: "c"})[0][-1][f"j/{name}"]
    assert incident.likely_cause
    assert incident.proposed
    assert incident.cost


def test_the_resolution_says_what_it_rests_on() -> None:
    history, _ = played(mismatch="cooo")
    assert history[-1]["j/mismatch"].message == "no alarm in 3 judged steps; the last, at step 0: mismatch 0"


@pytest.mark.parametrize(
    ("letters", "acknowledged"),
    [("www", True), ("wwoow", True), ("wwc", False), ("ccw", True), ("wwooow", False), ("wwoooww", False)],
)
def test_an_acknowledgement_is_of_the_incident_as_it_is(letters: str, acknowledged: bool) -> None:
    history, _ = played(mismatch=letters[:2])
    [(key, incident)] = history[-1].items()
    by = Acknowledgement(issuer="ada", reason="on it", step=1)
    incidents = {key: replace(incident, acknowledged=by)}
    for step, letter in enumerate(letters[2:], start=2):
        verdicts = {"mismatch": Verdict(detector="mismatch", state=LETTERS[letter])}
        now = Moment(job="j", attempt=1, step=step, tick=step + 1)
        incidents, _ = advanced(incidents, verdicts, SETTINGS, now)
    assert (incidents[key].acknowledged == by) is acknowledged
