"""Webhooks over the API, by the client, and from the command line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from agent_runs import Plant
from alerting import LOOPBACK, told
from api_runs import serving
from receivers import Receiver, reply
from standardwebhooks import Webhook
from typer.testing import CliRunner, Result

from trimtab import StepSummary
from trimtab.api.cli import app
from trimtab.api.cli.errors import UsageError
from trimtab.api.client import Client, ClientError
from trimtab.api.notify.settings import AlertSettings, AlertSettingsError, alert_settings
from trimtab.api.notify.shapes import SHAPES
from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.api.settings import Settings
from trimtab.hooks.records import SignTotals
from trimtab.storage.endpoints import MAX_ENDPOINTS

TOKEN_PATH = "T0KEN/B0T/very-secret"
PROMPT = {"group_wait": 0, "group_interval": 1}


@pytest.fixture
def url(service: Service) -> Iterator[str]:
    alerts = AlertSettings(policy=LOOPBACK, public_url="https://trimtab.corp")
    with running(service, settings=Settings(alerts=alerts)) as url:
        yield url


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def problems(response: httpx.Response) -> list[tuple[str, str]]:
    return [(one["field"], one["message"]) for one in response.json()["errors"]]


def broken(step: int) -> StepSummary:
    """A step with a NaN in its loss, which fires at once."""
    return StepSummary(job="run", attempt=1, step=step, positive=SignTotals(tokens=100), scalars={"loss": math.nan})


def test_what_a_trainer_reports_reaches_the_receiver_signed_and_once(client: Client, receiver: Receiver) -> None:
    issued = client.add_webhook("team", "trimtab", url=receiver.url, **PROMPT)
    for _ in range(3):  # a trainer that heard no answer sends it again
        client.ingest(broken(1))
    receiver.wait_for(1)
    client.test_webhook(issued.webhook.id)  # whatever else was on its way has arrived before it
    first, second = receiver.received
    assert issued.secret is not None
    body = Webhook(issued.secret).verify(first.body, first.headers)
    assert told([first]) == [("alerts.firing", [("nonfinite", "firing")])]
    assert body["data"]["url"] == "https://trimtab.corp/?job=run"
    assert body["data"]["alerts"][0]["severity"] == "critical"
    assert second.json["data"]["job"] == "trimtab-test"


def test_a_silence_and_an_acknowledgement_over_the_api_are_heeded(client: Client, receiver: Receiver) -> None:
    client.add_webhook("team", "pagerduty", url=receiver.url, key="k" * 32, **PROMPT)
    client.ingest(broken(1))
    receiver.wait_for(1)
    client.acknowledge("run", "nonfinite", reason="on it", issuer="ada")
    receiver.wait_for(2)
    assert [one.json["event_action"] for one in receiver.received] == ["trigger", "acknowledge"]


def test_no_answer_shows_a_credential(http: httpx.Client, receiver: Receiver) -> None:
    secret_url = f"{receiver.url}/{TOKEN_PATH}?token=very-secret"
    made = http.post("/v1/webhooks", json={"name": "team", "shape": "slack", "url": secret_url})
    assert made.status_code == 201
    assert made.json()["secret"] is None  # nobody at Slack could check a signature
    id = made.json()["webhook"]["id"]
    pager = http.post(
        "/v1/webhooks", json={"name": "pager", "shape": "pagerduty", "url": receiver.url, "key": "Z" * 32}
    )
    signed = http.post("/v1/webhooks", json={"name": "ours", "shape": "trimtab", "url": receiver.url}).json()
    receiver.default = reply(500, b"broken")
    http.post(f"/v1/webhooks/{id}/test")
    http.post(f"/v1/webhooks/{pager.json()['webhook']['id']}/test")
    patched = http.patch(f"/v1/webhooks/{id}", json={"url": secret_url + "&again", "reason": "moved"})
    answers = [made, pager, patched, *(http.get(path) for path in ("/v1/webhooks", f"/v1/webhooks/{id}", "/v1/audit"))]
    answers.append(http.get(f"/v1/webhooks/{id}/deliveries"))
    assert all(answer.is_success for answer in answers)
    shown = "".join(answer.text for answer in answers)
    for credential in (TOKEN_PATH, "very-secret", "Z" * 32, signed["secret"]):
        assert credential not in shown
    assert f'"url":"http://127.0.0.1:{receiver.server_port}/..."' in shown


def test_a_webhook_is_what_its_shape_makes_sense_with(client: Client, receiver: Receiver) -> None:
    for shape, rules in SHAPES.items():
        key = {} if rules.keyed is None else {"key": "k" * 32}
        made = client.add_webhook(shape, shape, url=receiver.url, **key)
        view = made.webhook
        assert (view.severity, tuple(view.kinds)) == (rules.severity, rules.kinds)
        assert (view.group_wait, view.group_interval, view.repeat_interval) == (
            rules.timing.group_wait,
            rules.timing.group_interval,
            rules.timing.repeat_interval,
        )
        assert (made.secret is not None) is rules.signed
    assert [one.name for one in client.webhooks()] == sorted(SHAPES)
    assert client.webhook(view.id) == view


def test_the_worst_shapes_of_a_test_reach_their_end(client: Client, receiver: Receiver) -> None:
    """Where an alert would stay open, the test is closed again."""
    sent = {}
    for shape, rules in SHAPES.items():
        key = {} if rules.keyed is None else {"key": "k" * 32}
        made = client.add_webhook(shape, shape, url=f"{receiver.url}/{shape}", **key)
        sent[shape] = [one.status.value for one in client.test_webhook(made.webhook.id)]
    assert sent == {shape: ["delivered"] * (1 + rules.stateful) for shape, rules in SHAPES.items()}
    pager = [one.json["event_action"] for one in receiver.received if one.path.endswith("/pagerduty")]
    assert pager == ["trigger", "resolve"]


def test_a_test_says_what_was_wrong(client: Client, receiver: Receiver) -> None:
    id = client.add_webhook("team", "slack", url=receiver.url).webhook.id
    receiver.answers = [reply(404, b"no_service")]
    (one,) = client.test_webhook(id)
    assert (one.status.value, one.attempts, one.answer, one.error) == ("dead", 1, 404, "404 Not Found: no_service")
    assert list(client.deliveries(id)) == [one]
    again = client.retry_delivery(one.id, reason="mended")
    assert (again.id, again.status.value) == (one.id, "pending")
    receiver.wait_for(2)
    client.change_webhook(id, enabled=False, reason="holidays")
    with pytest.raises(ClientError, match="disabled; enable it first"):
        client.test_webhook(id)


def test_deliveries_are_read_in_pages(client: Client, http: httpx.Client, receiver: Receiver) -> None:
    id = client.add_webhook("team", "slack", url=receiver.url).webhook.id
    sent = [client.test_webhook(id)[0].id for _ in range(5)]
    assert [one.id for one in client.deliveries(id)] == sent[::-1]
    seen, cursor = [], None
    while True:
        params = {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
        page = http.get(f"/v1/webhooks/{id}/deliveries", params=params).json()
        seen += [one["id"] for one in page["deliveries"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == sent[::-1]
    assert list(client.deliveries(id, status="dead")) == []


def test_a_secret_is_replaced_while_both_are_good(client: Client, receiver: Receiver) -> None:
    old = client.add_webhook("team", "trimtab", url=receiver.url)
    new = client.rotate_webhook(old.webhook.id, overlap=3600, reason="due")
    assert new.secret not in (None, old.secret)
    assert new.webhook.old_secret_until is not None
    client.test_webhook(old.webhook.id)
    (request,) = receiver.received
    for issued in (old, new):
        assert issued.secret is not None
        Webhook(issued.secret).verify(request.body, request.headers)
    assert client.rotate_webhook(old.webhook.id, overlap=0).webhook.old_secret_until is None


def test_a_change_changes_what_is_named_and_nothing_else(client: Client, receiver: Receiver) -> None:
    before = client.add_webhook("team", "slack", url=receiver.url).webhook
    after = client.change_webhook(before.id, severity="critical", jobs=["prod-*"], repeat_interval=None, reason="quiet")
    assert (after.severity.value, after.jobs, after.repeat_interval) == ("critical", ["prod-*"], None)
    named = {"severity", "jobs", "repeat_interval"}
    assert after.model_dump(exclude=named) == before.model_dump(exclude=named)
    client.remove_webhook(before.id, reason="gone")
    assert client.webhooks() == []
    with pytest.raises(ClientError, match="there is no webhook"):
        client.webhook(before.id)


def test_every_change_is_on_record_with_its_reason(client: Client, http: httpx.Client, receiver: Receiver) -> None:
    id = client.add_webhook("team", "slack", url=receiver.url, reason="we are five now").webhook.id
    client.change_webhook(id, severity="critical", reason="too much")
    client.remove_webhook(id, reason="gone")
    entries = http.get("/v1/audit").json()["entries"]
    assert [(one["action"], one["reason"]) for one in entries] == [
        ("webhook_added", "we are five now"),
        ("webhook_changed", "too much"),
        ("webhook_removed", "gone"),
    ]
    assert entries[1]["detail"] == {
        "webhook": id,
        "before": {"severity": "info"},
        "after": {"severity": "critical"},
    }


@pytest.mark.parametrize(
    ("wanted", "field", "message"),
    [
        ({"shape": "fax"}, "shape", "is no shape; shapes: trimtab, slack"),
        ({"url": None}, "url", "missing"),
        ({"url": "ftp://x/"}, "url", "must begin with https"),
        ({"url": "http://10.0.0.1/"}, "url", "not a public address"),
        ({"url": "http://user:pw@127.0.0.1/"}, "url", "user name"),
        ({"url": "http://2130706433/"}, "url", "number"),
        ({"url": "http://169.254.169.254/"}, "url", "credentials"),
        ({"key": "k" * 32}, "key", "the shape slack has none"),
        ({"shape": "pagerduty"}, "key", "missing"),
        ({"shape": "pagerduty", "key": "short"}, "key", "pattern"),
        ({"shape": "pagerduty", "key": "k" * 32, "kinds": ["change"]}, "kinds", "change cannot be told"),
        ({"name": ""}, "name", "at least 1"),
        ({"name": "a\nb"}, "name", "pattern"),
        ({"name": "a\ud800"}, "name", ""),
        ({"jobs": []}, "jobs", "at least 1"),
        ({"jobs": ["../x"]}, "jobs.0", "pattern"),
        ({"group_wait": -1}, "group_wait", "greater than or equal to 0"),
        ({"group_interval": 3600, "repeat_interval": 60}, "repeat_interval", "less than group_interval"),
        ({"severity": "dire"}, "severity", "info"),
        ({"colour": "red"}, "colour", "not permitted"),
    ],
)
def test_what_cannot_be_is_refused_with_the_field_named(
    http: httpx.Client, wanted: dict[str, object], field: str, message: str
) -> None:
    whole = {"name": "team", "shape": "slack", "url": "http://127.0.0.1:9/x"} | wanted
    response = http.post("/v1/webhooks", content=json.dumps(whole), headers={"content-type": "application/json"})
    assert response.status_code == 422
    ((named, said),) = problems(response)
    assert named == field
    assert message in said
    assert http.get("/v1/webhooks").json() == {"webhooks": [], "next": None}


def test_what_is_not_there_or_taken_is_said(client: Client, http: httpx.Client, receiver: Receiver) -> None:
    for path in ("", "/deliveries"):
        assert http.get(f"/v1/webhooks/wh_no{path}").status_code == 404
    for path, body in (("/test", None), ("/rotate", {}), ("", None)):
        assert http.post(f"/v1/webhooks/wh_no{path or '/test'}", json=body).status_code == 404
    assert http.patch("/v1/webhooks/wh_no", json={}).status_code == 404
    assert http.delete("/v1/webhooks/wh_no").status_code == 404
    assert http.post("/v1/deliveries/msg_no/retry", json={}).status_code == 404
    for method, path, id in (("GET", "webhooks/wh_no", "wh_no"), ("POST", "deliveries/msg_no/retry", "msg_no")):
        (problem,) = http.request(method, f"/v1/{path}", json={}).json()["errors"]
        assert (problem["field"], problem["value"]) == ("id", id)
    client.add_webhook("team", "slack", url=receiver.url)
    other = client.add_webhook("other", "slack", url=receiver.url).webhook
    taken = http.post("/v1/webhooks", json={"name": "team", "shape": "slack", "url": receiver.url})
    assert (taken.status_code, problems(taken)) == (409, [("name", "there is a webhook 'team'; give another name")])
    assert http.patch(f"/v1/webhooks/{other.id}", json={"name": "team"}).status_code == 409
    (sent,) = client.test_webhook(other.id)
    assert http.post(f"/v1/deliveries/{sent.id}/retry", json={}).status_code == 409
    assert http.get("/v1/webhooks/..%2f..").status_code in (404, 422)


def test_there_are_only_so_many(client: Client, receiver: Receiver) -> None:
    for number in range(MAX_ENDPOINTS):
        client.add_webhook(f"n{number}", "slack", url=receiver.url)
    with pytest.raises(ClientError, match="no more can be had"):
        client.add_webhook("one too many", "slack", url=receiver.url)


# From the command line


def run(*arguments: str, url: str) -> Result:
    return CliRunner().invoke(app, ["webhook", *arguments, "--url", url], env={"COLUMNS": "200"})


def test_the_command_line_covers_it_all(url: str, receiver: Receiver) -> None:
    added = run("add", "team", "trimtab", "--to", receiver.url, "--job", "prod-*", url=url)
    assert added.stdout.startswith("whsec_")
    assert "told from info on" in added.stderr
    listed = run("list", url=url)
    assert "prod-*" in listed.stdout
    assert "/hook" not in listed.stdout
    assert "arrived" in run("test", "team", url=url).stdout
    receiver.answers = [reply(400, b"go away")]
    refused = run("test", "team", url=url)
    assert (refused.exit_code, "did not arrive: 400 Bad Request: go away" in refused.stdout) == (1, True)
    listed = run("deliveries", "team", "--status", "dead", url=url)
    assert "400 Bad Request: go away" in listed.stdout
    (dead,) = json.loads(run("deliveries", "team", "--status", "dead", "--json", url=url).stdout)["deliveries"]
    assert "on its way again" in run("retry", dead["id"], url=url).stdout
    changed = run("change", "team", "--severity", "critical", "--repeat-interval", "0", "--json", url=url)
    view = json.loads(changed.stdout)
    assert (view["severity"], view["repeat_interval"]) == ("critical", None)
    assert run("change", view["id"], "--disable", "--reason", "holidays", url=url).stdout.endswith("is changed\n")
    assert "disabled: holidays" in run("list", url=url).stdout
    assert run("rotate", "team", url=url).stdout.startswith("whsec_")
    assert "told of nothing any more" in run("remove", "team", url=url).stdout
    gone = run("test", "team", url=url)
    assert isinstance(gone.exception, UsageError)
    assert "there is no 'team'" in str(gone.exception)


def test_a_service_that_is_killed_between_fire_and_resolve_tells_both(tmp_path: Path, receiver: Receiver) -> None:
    db = tmp_path / "agent.db"
    flags = ("--allow-http-webhooks", "--allow-private-webhooks", "127.0.0.0/8")
    plant = Plant(seed=0)
    with serving(db, *flags) as (process, url), Client(url) as client:
        client.add_webhook("team", "trimtab", url=receiver.url, kinds=["incident"], **PROMPT)
        client.ingest(broken(0))
        receiver.wait_for(1)
        process.kill()
    plant.step, plant.job = 0, "run"
    with serving(db, *flags) as (_, url), Client(url) as client:
        for _ in range(60):
            client.ingest(plant.advance())
        while "alerts.resolved" not in [one.json["type"] for one in receiver.received]:
            receiver.wait_for(len(receiver.received) + 1)
    once = {one.headers["webhook-id"]: one for one in receiver.received}  # the first may come a second time
    assert told(list(once.values())) == [
        ("alerts.firing", [("nonfinite", "firing")]),
        ("alerts.resolved", [("nonfinite", "resolved")]),
    ]


def test_a_service_that_is_asked_to_end_tells_first_what_is_due(tmp_path: Path, receiver: Receiver) -> None:
    flags = ("--allow-http-webhooks", "--allow-private-webhooks", "127.0.0.0/8")
    with serving(tmp_path / "agent.db", *flags) as (process, url):
        with Client(url) as client:
            client.add_webhook("team", "trimtab", url=receiver.url, **PROMPT)
            client.ingest(broken(0))
        process.terminate()
        process.wait(30)
    assert told(receiver.received) == [("alerts.firing", [("nonfinite", "firing")])]


def test_networks_and_addresses_that_are_none_are_refused() -> None:
    for option, wanted in (
        ("allow-private-webhooks", {"private": ["10.0.0.1/8"]}),
        ("webhook-proxy", {"proxy": "proxy:3128"}),
        ("public-url", {"public_url": "trimtab.corp"}),
    ):
        with pytest.raises(AlertSettingsError, match=f"^{option}: "):
            alert_settings(**wanted)
    settings = alert_settings(private=["10.0.0.0/8", "fd00::/8"], public_url="https://trimtab.corp/")
    assert settings.link("a b") == "https://trimtab.corp/?job=a%20b"
    assert AlertSettings().link("run") == ""
