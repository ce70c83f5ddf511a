"""Incidents: exact phases for exact verdicts."""

import pytest

from trimtab.agent.detector import Role
from trimtab.agent.detectors import DETECTORS
from trimtab.agent.incidents import IncidentSettings, advanced, fingerprint
from trimtab.agent.state import Incident, Phase, State, Verdict

SETTINGS = IncidentSettings(for_steps=1, keep_firing_for=3)
LETTERS = {
    "o": State.OK,
    "w": State.WARN,
    "c": State.CRITICAL,
    "?": State.INCONCLUSIVE,
    "-": State.NOT_OBSERVED,
}


def played(**series: str) -> tuple[list[dict[str, Incident]], list[tuple[int, str, str]]]:
    """Incidents after each step, and (step, detector, event), for verdicts given as letters, one a step."""
    incidents: dict[str, Incident] = {}
    history, rows = [], []
    for step, letters in enumerate(zip(*series.values(), strict=True)):
        verdicts = {
            name: Verdict(detector=name, state=LETTERS[letter], message=f"{name} {step}")
            for name, letter in zip(series, letters, strict=True)
        }
        incidents, events = advanced(incidents, verdicts, SETTINGS, job="j", attempt=1, step=step)
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
        ("cooocooo", [(0, "firing"), (3, "resolved"), (4, "firing"), (7, "resolved")]),
    ],
)
def test_phases(letters: str, events: list[tuple[int, str]]) -> None:
    _, rows = played(mismatch=letters)
    assert [(step, kind) for step, _, kind in rows] == events


def test_flapping_is_one_incident_that_comes_back() -> None:
    history, rows = played(nonfinite="cooocooo")
    key = fingerprint("j", "nonfinite")
    assert [kind for _, _, kind in rows] == ["firing", "resolved", "firing", "resolved"]
    assert history[-1][key].occurrences == 2
    assert history[4][key].since_step == 4
    assert {name for incidents in history for name in incidents} == {"j/nonfinite"}


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
    assert rows == [(1, "nonfinite", "firing"), (5, "nonfinite", "resolved"), (5, "reward", "firing")]


def test_an_incident_that_was_open_before_its_cause_goes_on() -> None:
    history, _ = played(reward="ccc", nonfinite="occ")
    assert history[-1]["j/reward"].last_alarm_step == 2


def test_a_warning_inhibits_nothing() -> None:
    _, rows = played(nonfinite="wwww", reward="oocc")
    assert (2, "reward", "firing") in rows


@pytest.mark.parametrize("name", DETECTORS)
def test_broken_inputs_inhibit_every_detector_of_another_role(name: str) -> None:
    for cause in {"nonfinite", "tokens"} - {name}:
        history, _ = played(**{cause: "cc", name: "cc"})
        opened = f"j/{name}" in history[-1]
        assert opened == (DETECTORS[name].ROLE is Role.INPUT)


def test_the_resolution_says_what_it_rests_on() -> None:
    history, _ = played(mismatch="cooo")
    assert history[-1]["j/mismatch"].message == "no alarm in 3 judged steps; the last, at step 0: mismatch 0"
