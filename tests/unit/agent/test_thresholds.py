"""The lines in the charts are where the detectors alarm."""

from collections.abc import Iterator
from statistics import mean, median

import pytest
from agent_runs import Plant
from agent_sessions import Session

from trimtab.agent.run_state import RunState
from trimtab.agent.state import Mode, State
from trimtab.agent.thresholds import Threshold, thresholds


def of(session: Session, signal: str, detector: str) -> list[Threshold]:
    found = thresholds(session.config, session.state)
    return [one for one in found if (one.signal, one.detector) == (signal, detector)]


def crossed(session: Session, threshold: Threshold) -> bool | None:
    """Whether the statistic is past the threshold; None while there is no window."""
    track = session.state.tracks.get(threshold.signal)
    if track is None or not track.is_full(session.config.window):
        return None
    value = {"mean": mean, "median": median}[threshold.statistic](track.recent)
    return value > threshold.value if threshold.side == "above" else value < threshold.value


def steps(session: Session, count: int) -> Iterator[RunState]:
    for _ in range(count):
        session.run(1)
        yield session.state


def test_both_thresholds_of_the_conjunction_are_crossed_where_it_alarms_and_nowhere_else() -> None:
    session, seen = Session(Plant(seed=0, noisy_from=10), mode=Mode.OBSERVE), set()
    for state in steps(session, 40):
        past = [
            crossed(session, *of(session, signal, "mismatch")) for signal in ("mismatch_std", "clip_fraction_positive")
        ]
        alarms = state.verdicts["mismatch"].state is State.CRITICAL
        assert alarms is (past == [True, True])
        seen.add(alarms)
    assert seen == {True, False}


def test_the_reward_has_collapsed_where_it_is_below_its_threshold() -> None:
    session = Session(mode=Mode.OBSERVE).run(20, scalars={"reward_mean": 0.8})
    [collapse, *_] = of(session, "reward_mean", "reward")
    assert (collapse.side, collapse.needs) == ("below", "")
    assert collapse.value == pytest.approx(0.8 * 0.6)
    session.run(4, scalars={"reward_mean": 0.41})
    assert not crossed(session, collapse)
    assert session.state.verdicts["reward"].state is not State.CRITICAL
    session.run(6, scalars={"reward_mean": 0.1})
    assert crossed(session, of(session, "reward_mean", "reward")[0])
    assert session.state.verdicts["reward"].state is State.CRITICAL


@pytest.mark.parametrize(("share", "alarms"), [(0.04, False), (0.06, True)])
def test_garbage_alarms_beyond_its_threshold(share: float, alarms: bool) -> None:
    session = Session(mode=Mode.OBSERVE).run(6, scalars={"reward_mean": 0.5, "garbage_fraction": share})
    [threshold] = of(session, "garbage_fraction", "garbage")
    assert crossed(session, threshold) is alarms
    assert session.state.verdicts["garbage"].state.alarming is alarms


def test_what_drifts_has_a_line_on_each_side_that_is_a_sign() -> None:
    session = Session(mode=Mode.OBSERVE).run(40, scalars={"reward_mean": 0.5, "grad_norm": 2.0, "length_mean": 100.0})
    found = {one.signal: [] for one in thresholds(session.config, session.state) if one.detector == "drift"}
    for one in thresholds(session.config, session.state):
        if one.detector == "drift":
            found[one.signal].append((one.side, round(one.value, 6), one.pass_index))
    assert found["grad_norm"] == [("above", 12.0, 0), ("below", 0.5, 0)]
    assert found["length_mean"] == [("above", 160.0, None), ("below", 50.0, None)]
    [(side, value, _)] = found["ess"]
    anchor = session.state.tracks["ess"].baseline.anchor
    assert anchor is not None
    assert (side, value) == ("below", pytest.approx(1 - max(6 * (1 - anchor.location), 0.1), abs=1e-6))


def test_the_trend_of_entropy_alarms_beyond_what_it_said_that_its_limits_are() -> None:
    session = Session(mode=Mode.OBSERVE).run(80)
    above, below = of(session, "entropy", "entropy_trend")
    evidence = session.state.verdicts["entropy_trend"].evidence
    assert above.value - below.value == pytest.approx(evidence["rise_limit"] - evidence["fall_limit"])
    assert below.value < evidence["entropy_before"] < above.value


def test_before_the_first_summary_only_what_needs_no_history_is_known() -> None:
    found = thresholds(Session().config, RunState.initial("run"))
    assert {one.signal for one in found} == {
        "mismatch_std",
        "clip_fraction_positive",
        "asymmetry_gap",
        "escape_excess",
        "garbage_fraction",
        "retained_fraction",
        "ess",
        "mismatch_kl",
    }
