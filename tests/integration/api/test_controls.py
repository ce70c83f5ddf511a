"""A person's controls: bounds, generations, modes and proposals."""

from dataclasses import replace
from typing import Any

import httpx
import pytest
from agent_runs import Plant
from agent_sessions import CENTRED
from api_runs import drive, trimtab

from trimtab.agent.state import Acknowledgement
from trimtab.api.client import Client, ClientError
from trimtab.hooks.controls import CONTROL_NAMES, Capabilities, Liveness


@pytest.fixture
def plant(client: Client) -> Plant:
    """A healthy run, three steps in, in mode observe."""
    plant = Plant(seed=0)
    drive(client, plant, 3)
    return plant


def test_before_anything_is_wanted(client: Client, plant: Plant) -> None:
    view = client.controls("run")
    assert (view.generation, view.applied_generation, view.in_sync, view.overrides) == (0, 0, True, {})
    assert [control.name for control in view.controls] == list(CONTROL_NAMES)
    clip = next(control for control in view.controls if control.name == "clip_high")
    assert (clip.applied, clip.desired, clip.low, clip.high) == (plant.own.clip_high, None, 0.0, 100.0)
    formats = next(control for control in view.controls if control.name == "sampler_format")
    assert (formats.choices, formats.liveness) == (["bf16", "nvfp4"], "next_rollout")


def test_a_bound_that_is_off_is_infinite_and_not_missing(http: httpx.Client, plant: Plant) -> None:
    assert plant.own.dual_clip == float("inf")
    rows = {row["name"]: row for row in http.get("/v1/jobs/run/controls").json()["controls"]}
    assert rows["dual_clip"]["applied"] == "Infinity"
    assert (rows["dual_clip"]["desired"], rows["dual_clip"]["high"]) == (None, None)


def test_a_change_rides_on_every_reply_until_the_trainer_reports_it(client: Client, plant: Plant) -> None:
    view = client.patch_controls("run", {"centering": True, "clip_low": 0.1}, reason="try", base_generation=0)
    assert (view.generation, view.in_sync, view.overrides) == (1, False, {"centering": True, "clip_low": 0.1})
    lost = client.ingest(plant.advance()).command
    command = client.ingest(plant.advance()).command
    assert command == lost
    assert command is not None
    assert (command.generation, command.overrides, command.reason) == (1, view.overrides, "try")
    plant.obey(command)
    assert client.ingest(plant.advance()).command is None
    view = client.controls("run")
    assert (view.in_sync, view.applied_generation) == (True, 1)
    assert all(control.by_person for control in view.controls if control.desired is not None)


def test_null_lifts_an_override(client: Client, plant: Plant) -> None:
    client.patch_controls("run", {"centering": True, "clip_low": 0.1}, reason="try")
    view = client.patch_controls("run", {"centering": None}, reason="enough")
    assert (view.generation, view.overrides, view.reason) == (2, {"clip_low": 0.1}, "enough")
    drive(client, plant, 2)
    assert (plant.applied.centering, plant.applied.clip_low) == (False, 0.1)


@pytest.mark.parametrize(
    ("overrides", "field", "message"),
    [
        ({"clip_low": 7}, "overrides.clip_low", "is not a number in [0, 1]"),
        ({"clip_low": "wide"}, "overrides.clip_low", "is not a number in [0, 1]"),
        ({"clip_low": True}, "overrides.clip_low", "is not a number in [0, 1]"),
        ({"importance_high": "Infinity"}, "overrides.importance_high", "give a finite number"),
        ({"importance_high": "NaN"}, "overrides.importance_high", "give a finite number"),
        ({"centering": 1}, "overrides.centering", "is not true or false"),
        ({"clip_mode": "soft"}, "overrides.clip_mode", "is none of nominal, calibrated"),
        ({"speed": 2}, "overrides.speed", "no such control"),
        ({"sampler_format": "int4"}, "overrides.sampler_format", "is none of bf16, nvfp4"),
        ({"train_format": "bf16"}, "overrides.train_format", "restart in this trainer"),
        ({"importance": "tis"}, "overrides.importance", "would weight nothing, since the ratio is against the sampler"),
        ({}, "overrides", "at least 1 item"),
    ],
)
def test_a_change_that_cannot_be_gets_422_naming_the_control(
    http: httpx.Client, client: Client, plant: Plant, overrides: dict[str, Any], field: str, message: str
) -> None:
    response = http.patch("/v1/jobs/run/controls", json={"overrides": overrides, "reason": "r"})
    assert response.status_code == 422, response.text
    (problem,) = response.json()["errors"]
    assert problem["field"] == field
    assert message in problem["message"]
    assert client.controls("run").generation == 0
    assert client.job("run").rows == plant.step + 1


def test_each_impossible_override_is_an_error_of_its_own(http: httpx.Client, plant: Plant) -> None:
    overrides = {"clip_low": 7, "clip_high": 0.3, "speed": 2}
    response = http.patch(f"/v1/jobs/{plant.job}/controls", json={"overrides": overrides, "reason": "r"})
    assert response.status_code == 422
    problems = response.json()["errors"]
    assert [(one["field"], one["value"]) for one in problems] == [("overrides.clip_low", 7), ("overrides.speed", 2)]


def test_what_contradicts_another_override_is_refused_and_together_with_its_remedy_taken(
    client: Client, plant: Plant
) -> None:
    client.patch_controls("run", {"importance": "tis", "ratio_reference": "recomputed"}, reason="together")
    with pytest.raises(ClientError, match=r"overrides\.importance: .* would weight nothing"):
        client.patch_controls("run", {"ratio_reference": "sampler"}, reason="alone")
    drive(client, plant, 2)
    assert (plant.applied.importance, plant.applied.ratio_reference) == ("tis", "recomputed")
    view = client.patch_controls("run", {"importance": None, "ratio_reference": None}, reason="over")
    assert view.overrides == {}


def test_what_the_trainer_refuses_is_neither_in_effect_nor_awaited(client: Client, url: str, plant: Plant) -> None:
    client.patch_controls("run", {"centering": True, "clip_low": 0.1}, reason="try")
    summary = plant.advance()
    refusal = "centering: no head in this batch"
    client.ingest(replace(summary, generation=1, overrides={"clip_low": 0.1}, refusals=(refusal,)))
    view = client.controls("run")
    assert (view.in_sync, view.refused, view.refusals) == (False, ["centering"], [refusal])
    told = trimtab("status", "run", "--url", url).stdout
    assert "overrides, generation 1: clip_low = 0.1 (in effect), centering = True (refused)" in told
    assert f"refused by the trainer: {refusal}" in told
    client.patch_controls("run", {"centering": None}, reason="then not")
    assert (client.controls("run").in_sync, client.controls("run").refused) == (False, [])
    client.ingest(replace(plant.advance(), generation=2, overrides={"clip_low": 0.1}))
    assert (client.controls("run").in_sync, client.controls("run").refused) == (True, [])


def test_infinity_in_json_is_no_control_value(http: httpx.Client, plant: Plant) -> None:
    body = '{"overrides": {"importance_high": Infinity}, "reason": "r"}'
    response = http.patch("/v1/jobs/run/controls", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422, plant
    assert response.json() == {
        "errors": [
            {
                "field": "overrides.importance_high",
                "value": "inf",
                "message": "inf cannot be an override; give a finite number",
            }
        ]
    }


@pytest.mark.parametrize("kind", [{}, {"content-type": "application/x-www-form-urlencoded"}])
def test_a_body_that_is_not_said_to_be_json_is_told_how_to_say_it(
    http: httpx.Client, plant: Plant, kind: dict[str, str]
) -> None:
    body = '{"overrides": {"clip_low": 0.1}, "reason": "r"}'
    response = http.patch(f"/v1/jobs/{plant.job}/controls", content=body, headers=kind)
    assert response.status_code == 422
    (problem,) = response.json()["errors"]
    assert problem["field"] == "Content-Type"
    assert problem["message"].endswith("send the header content-type: application/json")


@pytest.mark.parametrize("reason", [{}, {"reason": ""}, {"reason": "  "}, {"reason": "\u200b\n"}])
def test_a_reason_is_mandatory(http: httpx.Client, plant: Plant, reason: dict[str, Any]) -> None:
    response = http.patch(f"/v1/jobs/{plant.job}/controls", json={"overrides": {"centering": True}, **reason})
    assert response.status_code == 422
    assert [problem["field"] for problem in response.json()["errors"]] == ["reason"]


def test_a_stale_base_gets_409_and_changes_nothing(client: Client, plant: Plant) -> None:
    client.patch_controls(plant.job, {"centering": True}, reason="first", base_generation=0)
    with pytest.raises(ClientError, match="the controls are at generation 1") as caught:
        client.patch_controls(plant.job, {"centering": None}, reason="second", base_generation=0)
    assert caught.value.status == 409
    assert client.controls(plant.job).overrides == {"centering": True}


def test_a_trainer_that_records_no_head_cannot_be_centred(client: Client) -> None:
    headless = Capabilities(controls={"centering": Liveness.LIVE})
    drive(client, Plant(seed=0, capabilities=headless, job="headless"), 1)
    with pytest.raises(ClientError, match=r"overrides\.centering: the rollouts record no sampler head"):
        client.patch_controls("headless", {"centering": True}, reason="r")
    centering = next(one for one in client.controls("headless").controls if one.name == "centering")
    assert centering.liveness is Liveness.ABSENT


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "controls", None),
        ("PATCH", "controls", {"overrides": {"centering": True}, "reason": "r"}),
        ("PUT", "mode", {"mode": "auto", "reason": "r"}),
        ("GET", "mode", None),
        ("GET", "health", None),
        ("GET", "incidents", None),
        ("GET", "events", None),
        ("GET", "signals", None),
        ("GET", "proposals", None),
        ("POST", "proposals/1/approve", {"changes": {}, "reason": "r"}),
        ("POST", "archive", {"reason": "r"}),
        ("POST", "unarchive", {"reason": "r"}),
        ("GET", "attempts", None),
        ("GET", "events.jsonl", None),
        ("POST", "incidents/reward/ack", {"reason": "r"}),
    ],
)
def test_an_unknown_job_gets_404_and_is_not_made(
    http: httpx.Client, method: str, path: str, body: dict[str, Any] | None
) -> None:
    response = http.request(method, f"/v1/jobs/nope/{path}", json=body)
    assert response.status_code == 404
    assert response.json()["errors"][0]["field"] == "job"
    assert http.get("/v1/jobs").json()["jobs"] == []


def test_the_mode_is_set_once_and_leaves_one_trace(client: Client, plant: Plant) -> None:
    for _ in range(2):
        assert client.set_mode(plant.job, "advise", reason="see what it says") == "advise"
    changes = [event for event in client.events(plant.job) if event.kind == "mode_changed"]
    assert [(event.message, event.detail["after"]) for event in changes] == [("see what it says", "advise")]
    assert client.register(plant.job, mode="auto").mode == "auto"


def test_the_kill_switch_lifts_everything_until_somebody_sets_the_mode(client: Client, plant: Plant) -> None:
    client.set_mode("run", "auto", reason="let it")
    client.patch_controls("run", {"clip_high": 0.3}, reason="wider")
    drive(client, plant, 2)
    assert plant.overrides == {"clip_high": 0.3}
    view = client.kill("run", reason="hands off", issuer="ada")
    assert (view.overrides, view.killed, view.generation) == ({}, True, 2)
    drive(client, plant, 2)
    assert plant.overrides == {}
    with pytest.raises(ClientError, match="the kill switch is set"):
        client.patch_controls("run", {"clip_high": 0.3}, reason="again")
    assert "the kill switch is set" in trimtab("status", "run", "--url", str(client.url)).stdout
    client.set_mode("run", "observe", reason="over")
    assert client.controls("run").killed is False
    assert [event.kind for event in client.events("run") if event.kind == "killed"] == ["killed"]


def test_to_register_a_killed_job_does_not_take_the_kill_switch_back(client: Client, plant: Plant) -> None:
    client.set_mode(plant.job, "auto", reason="let it")
    client.kill(plant.job, reason="hands off", issuer="ada")
    with pytest.raises(ClientError, match=r"^mode: the kill switch is set.*`trimtab mode run auto --reason") as refused:
        client.register(plant.job, mode="auto")
    assert refused.value.status == 409
    done = trimtab("register", plant.job, "--mode", "auto", "--url", str(client.url), check=False)
    assert (done.returncode, "mode: the kill switch is set" in done.stderr) == (2, True)
    assert client.register(plant.job, mode="observe").mode == "observe", "which it is in already"
    assert client.register(plant.job).mode == "observe"
    assert client.controls(plant.job).killed
    client.set_mode(plant.job, "auto", reason="seen to")
    assert (client.controls(plant.job).killed, client.register(plant.job, mode="auto").mode) == (False, "auto")
    assert client.register(plant.job, mode="advise").mode == "advise"


def test_the_command_kills_too(client: Client, plant: Plant) -> None:
    done = trimtab("kill", plant.job, "--reason", "hands off", "--url", str(client.url))
    assert (done.returncode, "no override is wanted any more" in done.stdout) == (0, True)
    assert client.controls(plant.job).killed


def test_a_proposal_waits_for_a_person_and_is_done_when_approved(client: Client) -> None:
    client.register("run", mode="approve")
    plant = Plant(seed=0, noisy_from=0)
    drive(client, plant, 12)
    (proposal,) = client.proposals("run")
    assert client.health("run").proposals == [proposal]
    assert client.controls("run").overrides == {}
    assert proposal.changes == proposal.overrides == CENTRED
    assert client.approve("run", proposal, reason="go").overrides == CENTRED
    drive(client, plant, 2)
    assert plant.overrides == proposal.overrides
    assert client.proposals("run") == []


def test_what_has_become_of_a_proposal_is_told_to_whoever_comes_too_late(client: Client) -> None:
    client.register("run", mode="approve")
    drive(client, Plant(seed=0, noisy_from=0), 12)
    (proposal,) = client.proposals("run")
    client.reject("run", proposal, reason="not now")
    assert proposal.id not in {one.id for one in client.proposals("run")}
    with pytest.raises(ClientError, match=r"proposal 1 was rejected at step 11 of attempt 1: not now; look") as caught:
        client.approve("run", proposal, reason="changed my mind")
    assert caught.value.status == 410
    with pytest.raises(ClientError, match="no such proposal was made") as caught:
        client.approve("run", proposal.model_copy(update={"id": 99}), reason="a typo")
    assert caught.value.status == 404
    assert client.controls("run").generation == 0


def test_a_proposal_expires_and_says_how_long_it_has(client: Client) -> None:
    client.register("run", mode="approve", config={"policy": {"expire": 5}})
    plant = Plant(seed=0, noisy_from=0)
    drive(client, plant, 8)
    (proposal,) = client.proposals("run")
    assert (proposal.step, proposal.steps_left) == (5, 3)
    drive(client, plant, 3)
    with pytest.raises(ClientError, match="was withdrawn at step 10 of attempt 1: nobody answered within 5") as caught:
        client.approve("run", proposal, reason="at last")
    assert caught.value.status == 410
    assert [(one.id, one.step) for one in client.proposals("run")] == [(2, 10)]


@pytest.mark.parametrize("what", ["approve", "reject"])
@pytest.mark.parametrize(
    "changes", [{}, {"centering": True}, {**CENTRED, "lr_scale": 0.5}, {**CENTRED, "centering": None}]
)
def test_a_decision_is_about_the_changes_that_were_seen(
    client: Client, http: httpx.Client, what: str, changes: dict[str, Any]
) -> None:
    client.register("run", mode="approve")
    drive(client, Plant(seed=0, noisy_from=0), 12)
    body = {"changes": changes, "reason": "go"}
    response = http.post(f"/v1/jobs/run/proposals/1/{what}", json=body)
    assert (response.status_code, response.json()["errors"][0]["field"]) == (409, "changes")
    assert http.post(f"/v1/jobs/run/proposals/1/{what}", json={"reason": "go"}).status_code == 422
    assert client.controls("run").overrides == {}
    assert len(client.proposals("run")) == 1


def test_whoever_looks_after_an_incident_is_named(client: Client) -> None:
    drive(client, Plant(seed=0, noisy_from=0), 12)
    incident = client.acknowledge("run", "mismatch", reason="on it", issuer="ada")
    assert incident.acknowledged == Acknowledgement(issuer="ada", reason="on it", step=11)
    assert incident in client.incidents("run")
    with pytest.raises(
        ClientError, match=r"target: 'reward' has no open incident; open: mismatch, asymmetry, clipping"
    ) as caught:
        client.acknowledge("run", "reward", reason="on it")
    assert caught.value.status == 409
