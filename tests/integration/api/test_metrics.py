"""What Prometheus is told: which jobs, under which names, and what one scrape takes."""

import math
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from agent_runs import Plant, step_summary
from api_runs import drive
from postgres import PostgresServer
from scrapes import Samples, labels, of_jobs, parsed, scraped
from sqlalchemy import event

from trimtab.agent.detectors import DETECTORS
from trimtab.agent.signals import SIGNALS
from trimtab.agent.state import Mode, OperatorAction, OperatorVerb
from trimtab.api.client import Client, ClientError
from trimtab.api.ingest import IngestQueue
from trimtab.api.metrics import Metrics
from trimtab.api.metrics.jobs import MAX_JOBS, OTHERS, QUIET_AFTER
from trimtab.api.metrics.known import HEARD_FOR
from trimtab.api.metrics.signals import SIGNAL_METRICS
from trimtab.api.service import Service
from trimtab.hooks.records import NonFinite
from trimtab.storage.archive import Archive
from trimtab.storage.database import Database
from trimtab.storage.values import Origin


def told(metrics: Metrics) -> Samples:
    return parsed(metrics.exposition().decode())


def metrics_of(service: Service) -> Metrics:
    return Metrics(service, IngestQueue(service))


@pytest.fixture
def clock() -> list[float]:
    """One number: what the service takes for the time, Unix seconds."""
    return [1_000_000.0]


@pytest.fixture
def timed(database_url: str, clock: list[float]) -> Iterator[Service]:
    database = Database(database_url)
    database.migrate()
    service = Service(database, clock=lambda: clock[0])
    yield service
    service.close()


def test_metrics_tell_the_last_step_of_every_job(client: Client, http: httpx.Client) -> None:
    client.register("saved", mode="auto")
    drive(client, Plant(seed=0, noisy_from=0, job="saved"), 16)
    drive(client, Plant(seed=0, noisy_from=0, job="lost"), 16)
    found = scraped(http)
    assert of_jobs(found["trimtab_step"]) == {"saved": 15, "lost": 15}
    assert of_jobs(found["trimtab_attempt"]) == {"saved": 1, "lost": 1}
    generations = of_jobs(found["trimtab_controls_generation"])
    assert generations == of_jobs(found["trimtab_controls_applied_generation"])
    assert generations["saved"] >= 1
    assert generations["lost"] == 0
    assert of_jobs(found["trimtab_remedies"]) == {"saved": generations["saved"], "lost": 0}
    assert of_jobs(found["trimtab_controls_in_sync"]) == {"saved": 1, "lost": 1}
    assert of_jobs(found["trimtab_job_severity"])["lost"] == 2
    assert found["trimtab_job_info"] == {labels(job="saved", mode="auto"): 1, labels(job="lost", mode="observe"): 1}
    assert found["trimtab_detector_severity"][labels(job="lost", detector="mismatch")] == 2
    told_of = labels(job="lost", detector="mismatch", severity="critical", phase="firing")
    assert found["trimtab_incidents"][told_of] == 1
    explained = labels(job="lost", detector="asymmetry", severity="critical", phase="suppressed")
    assert found["trimtab_incidents"][explained] == 1
    assert 0 <= of_jobs(found["trimtab_reward_mean"])["lost"] <= 1
    assert found["trimtab_ingest_rows_total"][labels(result="stored")] == 32
    assert found["trimtab_ingest_duration_seconds_count"][labels()] == 32
    assert found["trimtab_database_up"][labels()] == 1
    assert found["trimtab_build_info"]


def test_metrics_count_what_became_of_every_summary(client: Client, http: httpx.Client) -> None:
    summary = Plant(seed=0).advance()
    client.ingest(summary)
    client.ingest(summary)
    with pytest.raises(ClientError):
        client.ingest(replace(summary, generation=1))
    unreadable: list[dict[str, object]] = [{}, {"job": "run", "attempt": 1, "step": 2**60}]
    for bad in unreadable:
        assert http.post("/v1/summaries", json=bad).status_code == 422
    results = http.post("/v1/summaries/batch", json=unreadable).json()["results"]
    assert [one["result"] for one in results] == ["invalid", "invalid"]
    found = scraped(http)
    assert found["trimtab_ingest_rows_total"] == {
        labels(result="stored"): 1,
        labels(result="duplicate"): 1,
        labels(result="ignored"): 0,
        labels(result="conflict"): 1,
        labels(result="invalid"): 4,
        labels(result="failed"): 0,
    }
    assert of_jobs(found["trimtab_quarantined_summaries_total"]) == {"run": 1}


def test_answers_are_counted_by_status_whoever_gave_them(http: httpx.Client) -> None:
    assert http.get("/v1/jobs").status_code == 200
    assert http.get("/v1/jobs/nobody").status_code == 404
    assert http.get("/v1/jobs", headers={"host": "evil.example"}).status_code == 403
    assert scraped(http)["trimtab_http_responses_total"] == {
        labels(code="200"): 1,
        labels(code="401"): 0,
        labels(code="403"): 1,
        labels(code="404"): 1,
        labels(code="429"): 0,
    }


def test_labels_are_bounded_whatever_a_run_reports(client: Client, http: httpx.Client) -> None:
    summary = Plant(seed=0).advance()
    client.ingest(
        replace(
            summary,
            scalars={f"mine_{i}": float(i) for i in range(300)},
            nonfinite={f"tensor_{i}": NonFinite(nan=1) for i in range(300)},
        )
    )
    page = http.get("/metrics").text
    assert "mine_" not in page
    assert "tensor_" not in page
    found = parsed(page)
    assert found["trimtab_nonfinite_tokens_total"] == {labels(job="run", tensor="other", kind="nan"): 300}
    named = {name for samples in found.values() for key in samples for name, _ in key}
    assert named <= {
        "stage",
        "job",
        "mode",
        "detector",
        "severity",
        "phase",
        "tensor",
        "kind",
        "result",
        "code",
        "le",
        "version",
    }


def test_numbers_that_are_not_finite_are_told_as_they_are_and_counted(timed: Service) -> None:
    metrics = metrics_of(timed)
    broken = {"old_logprobs": NonFinite(nan=3, neginf=2, masked=50), "entropy": NonFinite(posinf=1, invalid=4)}
    given = {"grad_norm": math.nan, "update_norm": math.inf, "reward_mean": -math.inf, "length_mean": 7.0}
    for step in range(2):
        timed.ingest(step_summary(step, nonfinite=broken, scalars=given))
    found = told(metrics)
    assert math.isnan(of_jobs(found["trimtab_grad_norm"])["run"])
    assert of_jobs(found["trimtab_update_norm"]) == {"run": math.inf}
    assert of_jobs(found["trimtab_reward_mean"]) == {"run": -math.inf}
    assert of_jobs(found["trimtab_length_mean_tokens"]) == {"run": 7}
    assert of_jobs(found["trimtab_nonfinite_values"]) == {"run": 8}
    assert found["trimtab_nonfinite_tokens_total"] == {
        labels(job="run", tensor="old_logprobs", kind="nan"): 6,
        labels(job="run", tensor="old_logprobs", kind="-inf"): 4,
        labels(job="run", tensor="entropy", kind="+inf"): 2,
        labels(job="run", tensor="entropy", kind="invalid"): 8,
    }


def test_actions_are_counted_by_remedy_and_outcome(timed: Service) -> None:
    metrics = metrics_of(timed)
    timed.register("run", config=None, mode=None, issuer="me", reason="new")
    timed.operate(OperatorAction(job="run", verb=OperatorVerb.SET_MODE, issuer="me", reason="go", mode=Mode.AUTO))
    plant = Plant(seed=0, noisy_from=0)
    for _ in range(40):
        plant.obey(timed.ingest(plant.advance()).command)
    change = OperatorAction(
        job="run", verb=OperatorVerb.PATCH_CONTROLS, issuer="me", reason="slower", overrides={"clip_low": 0.3}
    )
    timed.operate(change)
    timed.operate(OperatorAction(job="run", verb=OperatorVerb.KILL, issuer="me", reason="stop"))
    found = {
        (dict(key)["action"], dict(key)["outcome"]): value
        for key, value in told(metrics)["trimtab_remediation_actions_total"].items()
    }
    assert found.pop(("by_hand", "issued")) == 1
    assert found.pop(("kill", "issued")) == 1
    assert found[("score_centering", "proposed")] == found[("score_centering", "issued")] == 1
    assert found[("score_centering", "unharmful")] == 1


def test_archived_and_quiet_jobs_are_told_no_more(timed: Service, clock: list[float]) -> None:
    metrics = metrics_of(timed)
    for job in ("kept", "archived", "quiet"):
        timed.ingest(replace(Plant(seed=0).advance(), job=job, nonfinite={"entropy": NonFinite(nan=1)}))
    assert of_jobs(told(metrics)["trimtab_step"]).keys() == {"kept", "archived", "quiet"}
    Archive(timed.database).put_away("archived", at=clock[0], origin=Origin(), issuer="me", reason="it is done")
    clock[0] += QUIET_AFTER
    timed.ingest(replace(Plant(seed=0).advance(), job="kept", step=1))
    assert "quiet" in metrics.exposition().decode()
    clock[0] += 1
    found = metrics.exposition().decode()
    assert "archived" not in found
    assert "quiet" not in found
    assert parsed(found)["trimtab_nonfinite_tokens_total"] == {labels(job="kept", tensor="entropy", kind="nan"): 1}


def test_jobs_beyond_the_most_that_are_told_one_by_one_are_told_together(timed: Service, clock: list[float]) -> None:
    metrics = metrics_of(timed)
    first = Plant(seed=0).advance()
    names = [f"job-{number:03}" for number in range(MAX_JOBS + 3)]
    timed.commit([timed.summary_input(replace(first, job=job, dropped_total=2)) for job in names])
    clock[0] += 10
    broken = NonFinite(nan=1)
    newest = [replace(first, job=job, step=1, dropped_total=2, nonfinite={"old_logprobs": broken}) for job in names]
    timed.commit([timed.summary_input(summary) for summary in (newest[0], *newest[-2:])])
    found = told(metrics)
    steps = of_jobs(found["trimtab_step"])
    assert steps.keys() == set(names[:MAX_JOBS])  # not those that reported last: nobody is put out by another
    assert of_jobs(found["trimtab_dropped_summaries_total"])[OTHERS] == 6
    assert of_jobs(found["trimtab_step_timestamp_seconds"])[OTHERS] == clock[0] - 10
    assert of_jobs(found["trimtab_job_severity"])[OTHERS] == 2
    assert of_jobs(found["trimtab_job_severity"])[names[0]] == 2
    assert found["trimtab_nonfinite_tokens_total"] == {
        labels(job=names[0], tensor="old_logprobs", kind="nan"): 1,
        labels(job=OTHERS, tensor="old_logprobs", kind="nan"): 2,
    }
    incidents = {key: value for key, value in found["trimtab_incidents"].items() if ("job", OTHERS) in key}
    assert incidents == {labels(job=OTHERS, detector="nonfinite", severity="critical", phase="firing"): 2}
    assert found["trimtab_jobs_not_exported"] == {labels(): 3}
    assert OTHERS not in of_jobs(found["trimtab_entropy_nats"])


def test_a_scrape_asks_the_database_no_more_often_for_more_jobs(timed: Service) -> None:
    metrics = metrics_of(timed)
    asked: list[str] = []

    def hear(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        asked.append(statement)

    event.listen(timed.database.engine, "before_cursor_execute", hear)
    summary, counts = Plant(seed=0).advance(), []
    for jobs in (2, 30):
        for number in range(jobs):
            timed.ingest(replace(summary, job=f"job-{number}"))
        metrics.exposition()  # looks once at how often each job reports
        asked.clear()
        assert len(of_jobs(told(metrics)["trimtab_step"])) == jobs
        counts.append(len(asked))
    assert counts[0] == counts[1]


def test_a_job_that_reports_no_more_is_told_of_after_a_restart_too(
    timed: Service, database_url: str, clock: list[float]
) -> None:
    before = metrics_of(timed)
    plant = Plant(seed=0, noisy_from=0)
    for _ in range(16):
        clock[0] += 100
        timed.ingest(plant.advance())
    expected = told(before)
    assert of_jobs(expected["trimtab_silent_after_seconds"]) == {"run": 2000}
    later = Service(Database(database_url), clock=lambda: clock[0] + HEARD_FOR + 1)
    after = told(metrics_of(later))
    later.close()
    for name in ("trimtab_incidents", "trimtab_detector_severity", "trimtab_step", "trimtab_silent_after_seconds"):
        assert str(after[name]) == str(expected[name])
    assert after["trimtab_mismatch_kl_nats"] == expected["trimtab_mismatch_kl_nats"]


def test_a_silent_job_is_no_longer_ok(timed: Service, clock: list[float]) -> None:
    metrics = metrics_of(timed)
    plant = Plant(seed=0)
    for _ in range(60):
        timed.ingest(plant.advance())
    assert of_jobs(told(metrics)["trimtab_job_severity"]) == {"run": 0}
    clock[0] += 601
    assert math.isnan(of_jobs(told(metrics)["trimtab_job_severity"])["run"])


def test_each_replica_tells_of_the_jobs_that_report_to_it(postgres: PostgresServer, clock: list[float]) -> None:
    with postgres.database() as url:
        replicas = [Service(Database(url), clock=lambda: clock[0]) for _ in range(2)]
        replicas[0].database.migrate()
        first, second = replicas
        metrics = [metrics_of(replica) for replica in replicas]
        plants = {job: Plant(seed=0, job=job) for job in ("a", "b")}
        for job, replica in zip(plants, replicas, strict=True):
            replica.ingest(plants[job].advance())
        for each in metrics:
            told(each)  # both know both jobs now
        for _ in range(3):
            clock[0] += 1
            first.ingest(plants["a"].advance())
            second.ingest(plants["b"].advance())
        assert [of_jobs(told(each)["trimtab_step"]) for each in metrics] == [{"a": 3}, {"b": 3}]
        clock[0] += 1
        second.ingest(plants["a"].advance())  # its connection was lost, and the other replica was nearer
        assert of_jobs(told(metrics[1])["trimtab_step"]) == {"a": 4, "b": 3}
        for _ in range(2):
            clock[0] += HEARD_FOR
            second.ingest(plants["a"].advance())
        assert "trimtab_step" not in told(metrics[0]) or "a" not in of_jobs(told(metrics[0])["trimtab_step"])
        clock[0] += HEARD_FOR + 1  # neither hears of them any more
        assert [of_jobs(told(each)["trimtab_step"]) for each in metrics] == [{"a": 6, "b": 3}] * 2
        for replica in replicas:
            replica.close()


def test_a_job_that_cannot_be_read_takes_no_other_out_of_sight(db: Path, clock: list[float]) -> None:
    service = Service(Database(db), clock=lambda: clock[0])
    service.database.migrate()
    for job in ("fine", "odd"):
        service.ingest(replace(Plant(seed=0).advance(), job=job))
    service.close()
    with sqlite3.connect(db) as connection:
        connection.execute("""UPDATE jobs SET config = '{"no_such_setting": 1}' WHERE name = 'odd'""")
    service = Service(Database(db), clock=lambda: clock[0])
    found = told(metrics_of(service))
    service.close()
    assert of_jobs(found["trimtab_step"]) == {"fine": 0}
    assert found["trimtab_unreadable_jobs"] == {labels(): 1}


def test_the_process_is_told_of_while_the_database_is_away(db: Path, client: Client, http: httpx.Client) -> None:
    client.ingest(Plant(seed=0).advance())
    with sqlite3.connect(db) as connection:
        connection.execute("ALTER TABLE jobs RENAME TO elsewhere")
    found = scraped(http)
    assert found["trimtab_database_up"] == {labels(): 0}
    assert found["trimtab_ingest_rows_total"][labels(result="stored")] == 1
    assert "trimtab_step" not in found


def test_every_signal_has_a_metric_of_its_own_that_tells_its_unit() -> None:
    names = [name for name, _ in SIGNAL_METRICS.values()]
    assert SIGNAL_METRICS.keys() == SIGNALS.keys()
    assert len(set(names)) == len(names)
    assert SIGNAL_METRICS["mismatch_kl"][0] == "trimtab_mismatch_kl_nats"
    assert SIGNAL_METRICS["clip_fraction_negative"][0] == "trimtab_clip_negative_ratio"
    assert SIGNAL_METRICS["tokens"][0] == "trimtab_tokens"
    assert SIGNAL_METRICS["staleness"][0] == "trimtab_staleness_versions"
    assert SIGNAL_METRICS["reward_mean"][0] == "trimtab_reward_mean"


def test_a_detector_that_cannot_judge_is_not_a_number(timed: Service) -> None:
    metrics = metrics_of(timed)
    timed.ingest(step_summary(0))
    found = told(metrics)["trimtab_detector_severity"]
    assert {dict(key)["detector"] for key in found} == set(DETECTORS)
    assert math.isnan(found[labels(job="run", detector="mismatch")])
