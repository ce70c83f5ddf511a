"""A log read for a real agent: once each, whatever is killed when; in order; with what it cannot tell."""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tail_runs import Reading, summaries, trl_row, write_rows

from trimtab.agent.state import EventKind, State
from trimtab.api.client import Client
from trimtab.api.client.base import ClientError
from trimtab.api.service import Service
from trimtab.api.tail.cursor import CursorFile
from trimtab.api.tail.source import Piece, Place, Row, TailError
from trimtab.api.tail.tailer import Tailer
from trimtab.hooks.log_facts import LogFacts
from trimtab.hooks.transport.connection import Connection

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def reading(tmp_path: Path, url: str) -> Iterator[Reading]:
    made = Reading(path=tmp_path / "log.jsonl", cursor=tmp_path / "state" / "cursor.json", url=url)
    yield made
    made.close()


def test_steps_come_with_their_meaning_and_their_lag(reading: Reading, service: Service) -> None:
    write_rows(reading.path, [trl_row(0, time=1e9), trl_row(1, time=1e9 + 5), trl_row(2)])
    reading.now = 1e9 + 7.5
    look = reading.tailer().look()
    assert (look.delivered, look.away, look.more) == (2, "", False)
    first, second = summaries(service)
    ratio = "sampling/importance_sampling_ratio/max"
    facts = LogFacts(source="jsonl", framework="trl", censored={ratio: "above"}, lag_seconds=7.5)
    assert (first.attempt, first.step, first.log) == (int(reading.now), 0, facts)
    assert first.scalars == {
        "loss": 0.0625,
        "grad_norm": 0.25,
        "reward_mean": 0.5,
        "entropy": 0.5,
        "zero_variance_fraction": 0.25,
        "length_mean": 64.0,
        "truncated_fraction": 0.0,
        ratio: 3.0,
    }
    assert second.log is not None
    assert second.log.lag_seconds == 2.5


def test_a_kill_at_any_write_loses_nothing_and_counts_nothing_twice(reading: Reading, service: Service) -> None:
    """Every state that was ever on disk is gone back to, as if the process had died right behind its write."""
    for step in range(6):
        write_rows(reading.path, [trl_row(step, reward=step / 8)])
        reading.now += 1  # so that what was measured once is not measured again
        reading.tailer(NOBODY).look()  # read, and not delivered
        held = reading.cursor.read_bytes()
        reading.now += 1
        reading.tailer().look()  # delivered
        if step % 2:
            reading.cursor.write_bytes(held)  # the process died before it wrote that down
            reading.now += 1
            reading.tailer().look()
    reading.tailer().look(last=True)
    found = summaries(service)
    assert [(one.step, one.scalars["reward_mean"]) for one in found] == [(step, step / 8) for step in range(6)]
    assert service.store.quarantined("run") == 0
    assert reading.tailer().cursor.counts.refused == 0


def test_while_the_agent_is_away_the_log_keeps_what_comes(reading: Reading, service: Service) -> None:
    write_rows(reading.path, [trl_row(step) for step in range(3)])
    away = reading.tailer(NOBODY)
    look = away.look()
    assert (look.delivered, look.away) == (0, f"nothing answers at {NOBODY}")
    place = away.cursor.place
    write_rows(reading.path, [trl_row(step) for step in range(3, 9)])
    away.look()
    assert away.cursor.place == place  # no more is read than waits already
    assert len(away.cursor.outbox) == 2
    reading.tailer().look(last=True)
    assert [one.step for one in summaries(service)] == list(range(9))


def test_a_resume_is_a_new_attempt(reading: Reading, service: Service) -> None:
    write_rows(reading.path, [trl_row(step) for step in range(8)])
    tailer = reading.tailer()
    tailer.look()
    write_rows(reading.path, [trl_row(step) for step in range(5, 10)])
    tailer.look(last=True)
    begun = int(reading.now)
    assert [(one.attempt - begun, one.step) for one in summaries(service)] == [
        *((0, step) for step in range(8)),
        *((1, step) for step in range(5, 10)),
    ]
    state = service.state("run")
    assert (state.attempt - begun, state.last_step) == (1, 9)


def test_a_step_is_complete_after_a_quiet_time(reading: Reading, service: Service) -> None:
    write_rows(reading.path, [trl_row(0)])
    tailer = reading.tailer(quiet_s=30.0)
    assert tailer.look().delivered == 0
    reading.now += 29
    assert tailer.look().delivered == 0
    reading.now += 1
    assert tailer.look().delivered == 1
    write_rows(reading.path, [{"step": 0, "late": 1.0}, trl_row(1), trl_row(2)])
    assert tailer.look().delivered == 1
    assert [(one.step, one.scalars.get("late")) for one in summaries(service)] == [(0, None), (1, 1.0)]
    assert tailer.cursor.assembly.late == 1


def test_a_key_that_vanishes_from_slow_steps_is_missed_too(reading: Reading, service: Service) -> None:
    tailer = reading.tailer(quiet_s=30.0)
    for step in range(22):
        write_rows(reading.path, [trl_row(step, entropy=0.5 if step < 21 else None)])
        tailer.look()
        reading.now += 300  # every step is complete for want of news, and not because of the next
        tailer.look()
    assert [one.log and one.log.vanished for one in summaries(service)][-2:] == [(), ("entropy",)]


def test_a_key_that_vanishes_is_an_incident_and_no_claim(reading: Reading, service: Service, client: Client) -> None:
    write_rows(reading.path, [trl_row(step) for step in range(25)])
    write_rows(reading.path, [trl_row(step, entropy=None) for step in range(25, 28)])
    write_rows(reading.path, [trl_row(step) for step in range(28, 160)])
    tailer = reading.tailer()
    tailer.look(last=True)
    events = service.store.events("run", limit=1000)
    fired = [event for event in events if event.kind == EventKind.INCIDENT_FIRING]
    assert [(event.step, "entropy is missing from the log" in event.message) for event in fired] == [(25, True)]
    assert "NaN" not in fired[0].message
    assert {event.kind for event in events}.isdisjoint({EventKind.PROPOSED, EventKind.CONTROLS_CHANGED})
    resolved = [event.step for event in events if event.kind == EventKind.INCIDENT_RESOLVED]
    assert len(resolved) == 1
    assert resolved[0] > 28
    assert client.health("run").job.state is State.OK


def test_what_the_log_shows_is_judged_and_what_it_does_not_is_not_green(reading: Reading, client: Client) -> None:
    write_rows(reading.path, [trl_row(step) for step in range(12)])
    write_rows(reading.path, [trl_row(12, grad_norm=math.nan), trl_row(13)])
    reading.tailer().look()
    health = client.health("run")
    told = {verdict.detector: verdict for verdict in health.verdicts}
    assert told["nonfinite"].state is State.CRITICAL
    assert told["nonfinite"].message == "grad_norm: 1 NaN"
    for unseen in ("tokens", "pipeline", "mismatch", "asymmetry", "clipping", "shift", "retained"):
        assert told[unseen].state is State.NOT_OBSERVED, unseen
    assert health.job.log is not None
    assert (health.job.log.source, health.job.log.framework) == ("jsonl", "trl")
    assert health.job.log.censored == {"sampling/importance_sampling_ratio/max": ">=3 (censored)"}
    assert [control for control in health.controls.controls if control.applied is not None] == []
    assert {control.liveness.value for control in health.controls.controls} == {"absent"}
    series = client.signals("run", ["sampling/importance_sampling_ratio/max", "entropy"]).series
    assert [(one.name, one.censored, set(one.values)) for one in series] == [
        ("sampling/importance_sampling_ratio/max", "above", {3.0}),
        ("entropy", None, {0.5}),
    ]
    (incident,) = health.incidents
    assert "no remedy is applied" in incident.proposed


def test_nothing_can_be_changed_in_a_job_that_is_read(reading: Reading, client: Client) -> None:
    write_rows(reading.path, [trl_row(step) for step in range(3)])
    reading.tailer().look()
    client.set_mode("run", "auto", reason="as far as it goes")
    with pytest.raises(ClientError, match="clip_high"):
        client.patch_controls("run", {"clip_high": 0.3}, reason="more", base_generation=0)
    write_rows(reading.path, [trl_row(step, grad_norm=1e3 * step) for step in range(3, 40)])
    look = reading.tailer().look()
    assert look.refusal == ""
    assert client.health("run").controls.generation == 0


def test_a_cursor_of_another_log_is_refused(reading: Reading, tmp_path: Path) -> None:
    write_rows(reading.path, [trl_row(0)])
    reading.tailer()
    reading.path = tmp_path / "other.jsonl"
    write_rows(reading.path, [trl_row(0)])
    with pytest.raises(TailError, match=r"--cursor: .*cursor\.json is of job 'run' and jsonl .*log\.jsonl, and not of"):
        reading.tailer()


def test_a_cursor_that_is_damaged_or_taken_is_named(reading: Reading) -> None:
    write_rows(reading.path, [trl_row(0)])
    held = CursorFile(reading.cursor)
    with pytest.raises(TailError, match="another tail has"):
        reading.tailer()
    held.close()
    for damage in (b"", b"{}", b"\xff", b'{"version": 9}', b"[]"):
        reading.cursor.write_bytes(damage)
        with pytest.raises(TailError, match=r"is no cursor .*; remove it to begin anew"):
            reading.tailer()


def test_a_summary_that_the_agent_never_takes_is_counted_and_told(reading: Reading, service: Service) -> None:
    write_rows(reading.path, [trl_row(step) for step in range(3)])
    held = reading.tailer(NOBODY)
    held.look()
    data = reading.cursor.read_bytes().replace(b'\\"step\\":0,', b'\\"step\\":-1,')
    reading.cursor.write_bytes(data)
    look = reading.tailer().look(last=True)
    assert '"field":"step","value":-1' in look.refusal
    assert look.delivered == 2
    assert reading.tailer().cursor.counts.refused == 1
    assert [one.step for one in summaries(service)] == [1, 2]


def test_it_may_begin_with_what_comes(reading: Reading, service: Service) -> None:
    write_rows(reading.path, [trl_row(step) for step in range(5)])
    tailer = reading.tailer(from_start=False)
    write_rows(reading.path, [trl_row(step) for step in range(5, 8)])
    tailer.look(last=True)
    assert [one.step for one in summaries(service)] == [5, 6, 7]


class Listed:
    """A log of these rows, whatever they are."""

    kind, quiet_s = "listed", 30.0

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def read(self, place: Place) -> Piece:
        return Piece(rows=tuple(self._rows[place.get("row", 0) :]), place={"row": len(self._rows)})

    def end(self) -> Place:
        return {"row": len(self._rows)}


def test_a_row_that_cannot_be_taken_is_counted_and_ends_nothing(tmp_path: Path, url: str, service: Service) -> None:
    rows = [
        Row(step=0, values={"loss": 0.5}),
        Row(step="2", values={"loss": 0.5}),  # type: ignore[arg-type]
        Row(step=3, values={"loss": 0.5}),
        Row(step=4, values={"loss": "text"}),  # type: ignore[dict-item]
        Row(step=5, values={"loss": 0.5}),
        Row(step=2**60, values={"loss": 0.5}),
    ]
    store, agent = CursorFile(tmp_path / "cursor.json"), Connection(url)
    tailer = Tailer(Listed(rows), path="/log", job="run", store=store, agent=agent)
    look = tailer.look(last=True)
    assert (look.delivered, look.refusal) == (3, "")
    assert [one.step for one in summaries(service)] == [0, 3, 5]
    assert tailer.cursor.counts.damaged == 3
    store.close()
    agent.hang_up()


def test_a_log_that_is_rotated_is_read_whole(reading: Reading, service: Service) -> None:
    write_rows(reading.path, [trl_row(step) for step in range(3)])
    tailer = reading.tailer()
    tailer.look()
    write_rows(reading.path, [trl_row(step) for step in range(3, 6)])
    reading.path.rename(f"{reading.path}.1")
    write_rows(reading.path, [trl_row(step) for step in range(6, 9)])
    while tailer.look(last=True).more:
        pass
    assert [one.step for one in summaries(service)] == list(range(9))
    assert tailer.cursor.counts.cut_off == 0
    os.unlink(f"{reading.path}.1")
    reading.path.unlink()
    write_rows(reading.path, [trl_row(9)])
    tailer.look(last=True)
    assert tailer.cursor.counts.cut_off == 1
