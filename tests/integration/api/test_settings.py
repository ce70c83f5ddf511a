"""What a job's agent was set up with, read back."""

import json

import httpx

from trimtab.agent.config import AgentConfig
from trimtab.storage.codec import CONFIG


def test_settings_are_told_with_every_default_filled_in(http: httpx.Client) -> None:
    http.put("/v1/jobs/run", json={"config": {"policy": {"budget": 4}}}).raise_for_status()
    told = http.get("/v1/jobs/run/settings").raise_for_status().json()
    assert told["job"] == "run"
    assert told["config"]["policy"]["budget"] == 4


def test_settings_that_are_told_can_be_given_again(http: httpx.Client) -> None:
    http.put("/v1/jobs/plain", json={}).raise_for_status()
    told = http.get("/v1/jobs/plain/settings").raise_for_status().json()["config"]
    assert CONFIG.decode(json.dumps(told)) == AgentConfig()
    assert http.put("/v1/jobs/plain", json={"config": told}).status_code == 200


def test_nobody_has_settings(http: httpx.Client) -> None:
    answer = http.get("/v1/jobs/nobody/settings")
    assert answer.status_code == 404
    assert answer.json()["errors"][0]["field"] == "job"
