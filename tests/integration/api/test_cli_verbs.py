"""The command line's verbs: the same as the API's, with its own answers under `--json`."""

import getpass
import io
import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_runs import Plant
from agent_sessions import CENTRED
from api_runs import drive
from rich.console import Console
from typer.testing import CliRunner

from trimtab.agent.checks import ConfigError
from trimtab.api.cli import app
from trimtab.api.cli.controls import parsed
from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.proposals import written
from trimtab.api.cli.tables import table_of
from trimtab.api.client import Client, ClientError
from trimtab.api.settings_file import SettingsFileError
from trimtab.hooks.records import StepSummary


@pytest.fixture
def ill(client: Client) -> Plant:
    """A run that asks for a remedy, in mode approve."""
    client.register("run", mode="approve")
    plant = Plant(seed=0, noisy_from=0)
    drive(client, plant, 12)
    return plant


@pytest.fixture
def said(url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs a verb in this process; what it prints. Its mistakes are raised, as `main` gets to see them."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, [*arguments, "--url", url])
        if done.exception is not None:
            raise done.exception
        return done.stdout

    return run


@pytest.fixture
def told(said: Callable[..., str]) -> Callable[..., Any]:
    """Runs a verb, and reads what it prints as JSON."""
    return lambda *arguments: json.loads(said(*arguments, "--json"))


def without_age(answer: Any) -> Any:
    """An answer without what changes by itself."""
    if isinstance(answer, dict):
        return {name: without_age(value) for name, value in answer.items() if name != "age"}
    return [without_age(value) for value in answer] if isinstance(answer, list) else answer


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("jobs",), ""),
        (("status", "run"), "/run/health"),
        (("incidents", "run", "--all"), "/run/incidents"),
        (("controls", "run"), "/run/controls"),
        (("mode", "run"), "/run/mode"),
        (("proposals", "run"), "/run/proposals"),
        (("baselines", "run"), "/run/baselines"),
    ],
)
def test_json_is_what_the_api_answers(
    ill: Plant, http: httpx.Client, told: Any, arguments: tuple[str, ...], path: str
) -> None:
    assert ill.job == "run"
    assert without_age(told(*arguments)) == without_age(http.get(f"/v1/jobs{path}").json())


def test_jobs_are_filtered_as_by_the_api(client: Client, told: Any, said: Any) -> None:
    for name, mode in (("cliff-1", "auto"), ("cliff-2", "observe"), ("slope", "auto")):
        client.register(name, mode=mode)
    client.archive("cliff-2", reason="old")

    def found(*arguments: str) -> list[str]:
        return [job["name"] for job in told("jobs", *arguments)["jobs"]]

    assert found() == ["slope", "cliff-1"]
    assert found("CLIFF", "--mode", "auto") == ["cliff-1"]
    assert found("--archived") == ["cliff-2"]
    assert found("--state", "critical") == []
    assert "cliff-1" in said("jobs")


def test_a_proposal_is_seen_and_approved(ill: Plant, client: Client, told: Any, said: Any) -> None:
    out = said("proposals", "run")
    assert out.startswith("1: ")
    assert "centering = True" in out
    assert told("approve", "run", "1", "--reason", "go ahead")["overrides"] == CENTRED
    with pytest.raises(UsageError, match="proposal 1 of run does not stand; standing: none"):
        said("reject", "run", "1", "--reason", "no")
    assert ill.job == "run"
    approved = next(event for event in client.events("run") if event.kind == "approved")
    assert approved.message == "go ahead"


def test_a_proposal_is_turned_down(ill: Plant, client: Client, said: Any) -> None:
    assert "proposal 1 is turned down" in said("reject", ill.job, "1", "--reason", "not now")
    assert client.controls("run").generation == 0


def test_an_incident_is_looked_after_silenced_and_told_again(ill: Plant, client: Client, told: Any, said: Any) -> None:
    assert "nobody" in said("incidents", ill.job)
    incident = told("ack", "run", "mismatch", "--reason", "on it")["incident"]
    assert incident["acknowledged"]["reason"] == "on it"
    silences = told("silence", "run", "mismatch", "--reason", "known", "--steps", "50")["silences"]
    assert [one["fingerprint"] for one in silences] == ["run/mismatch"]
    assert told("unsilence", "run", "mismatch", "--reason", "over")["silences"] == []
    with pytest.raises(ClientError, match="has no open incident"):
        said("ack", "run", "reward", "--reason", "r")
    assert client.incidents("run")


def test_incidents_say_which_are_told_and_why_others_are_not(ill: Plant, client: Client, said: Any) -> None:
    rows = [line.split()[:6] for line in said("incidents", ill.job).splitlines()[1:]]
    assert rows == [
        ["mismatch", "critical", "firing", "yes", "4", "nobody"],
        ["asymmetry", "critical", "firing", "explained", "by", "mismatch"],
        ["clipping", "warn", "firing", "explained", "by", "mismatch"],
    ]
    client.silence("run", "mismatch", reason="known")
    drive(client, ill, 1)
    assert said("incidents", "run").splitlines()[1].split()[:5] == ["mismatch", "critical", "firing", "silenced", "4"]
    status = said("status", "run")
    assert "firing since step 4 (silenced): mismatch: " in status
    assert "firing since step 4 (explained by mismatch): asymmetry: " in status
    (proposal,) = client.proposals("run")
    assert f"proposal 1: {written(proposal)}: {proposal.reason}\n" in status


def test_no_table_is_cut_off(client: Client, said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    address = f"https://hooks.example/{'a' * 200}"
    added = client.add_webhook("on call", "trimtab", url=address).webhook
    row = said("webhook", "list")
    assert added.id in row
    assert added.url in row
    assert "…" not in row


def test_a_terminal_folds_a_table() -> None:
    table = table_of("id", "error", whole="id")
    table.add_row("msg_0123456789abcdef", "refused " * 20)
    stream = io.StringIO()
    Console(file=stream, width=40).print(table)
    assert stream.getvalue().count("refused") == 20
    assert "msg_0123456789abcdef" in stream.getvalue()


def test_controls_and_mode_are_shown_and_changed(ill: Plant, client: Client, told: Any, said: Any) -> None:
    drive(client, ill, 1)
    assert told("controls", "run", "clip_high=0.3", "--reason", "wider")["overrides"] == {"clip_high": 0.3}
    with pytest.raises(ClientError, match="the controls are at generation 1"):
        said("controls", "run", "clip_high=0.4", "--reason", "r", "--base-generation", "0")
    assert told("controls", "run", "clip_high=null", "--reason", "over")["overrides"] == {}
    assert "clip_high" in said("controls", "run")
    assert told("mode", "run", "observe", "--reason", "enough") == {"job": "run", "mode": "observe"}
    assert said("mode", "run") == "observe\n"
    for arguments in (("mode", "run", "auto"), ("controls", "run", "clip_high=0.3")):
        with pytest.raises(UsageError, match=r"^reason: missing; say why with --reason$"):
            said(*arguments)


def test_a_job_is_put_away_and_brought_back(client: Client, told: Any) -> None:
    client.register("run")
    assert told("archive", "run", "--reason", "it has finished")["archived_at"] is not None
    assert client.jobs() == []
    assert told("archive", "run", "--undo", "--reason", "a look back")["archived_at"] is None


def test_a_job_is_registered_with_settings_of_its_own(client: Client, told: Any, said: Any, tmp_path: Path) -> None:
    assert said("register", "plain") == "plain is registered, in mode observe\n"
    assert said("settings", "plain") == "plain: every setting is the default\n"
    (tmp_path / "own.toml").write_text("window = 7\n[policy]\nbudget = 3\n")
    single = ("--set", "policy.budget=6", "--set", 'policy.allow=["score_centering"]')
    assert told("register", "own", "--mode", "auto", "--config", str(tmp_path / "own.toml"), *single)["mode"] == "auto"
    told("register", "own", "--mode", "advise", "--reason", "not yet")
    changes = [event for event in client.events("own") if event.kind == "mode_changed"]
    who = getpass.getuser()
    assert [(one.message, one.detail["issuer"]) for one in changes] == [("registered", who), ("not yet", who)]
    config = client.settings("own").config
    assert (config.window, config.policy.budget, config.policy.allow) == (7, 6, ("score_centering",))
    lines = [line.split() for line in said("settings", "own").splitlines()]
    assert {line[0]: line[1] for line in lines[1:]} == {
        "window": "7",
        "policy.budget": "6",
        "policy.allow": "score_centering",
    }
    assert len(said("settings", "own", "--all").splitlines()) > 50
    assert told("settings", "own") == json.loads(client.settings("own").model_dump_json())
    with pytest.raises(SettingsFileError, match="'budget' is not NAME=VALUE"):
        said("register", "other", "--set", "budget")
    with pytest.raises(ConfigError, match=r"policy\.bugdet: no such setting"):
        said("register", "other", "--set", "policy.bugdet=6")
    assert [one.name for one in client.jobs()] == ["own", "plain"]


def test_attempts_and_signals_are_shown(ill: Plant, client: Client, told: Any, said: Any) -> None:
    assert ill.job == "run"
    assert [line.split()[:5] for line in said("attempts", "run").splitlines()[1:]] == [["1", "0", "to", "11", "12"]]
    assert told("attempts", "run")["attempts"] == [asdict(one) for one in client.attempts("run")]
    rows = {line.split()[0]: line.split()[1:4] for line in said("signals", "run").splitlines()[1:]}
    assert rows["reward_mean"] == ["0", "to", "11"]
    found = client.signals("run", ["reward_mean", "mismatch_std"])
    lines = [line.split() for line in said("signals", "run", "reward_mean", "mismatch_std").splitlines()]
    assert lines[0] == ["step", "reward_mean", "mismatch_std"]
    columns = [[f"{value:.6g}" for value in one.values if value is not None] for one in found.series]
    assert lines[1:] == [[str(step), *row] for step, row in enumerate(zip(*columns, strict=True))]
    assert told("signals", "run", "mismatch_std", "--points", "5")["series"][0]["steps"][-1] == 11
    with pytest.raises(UsageError, match=r"^names: run has no signal 'nothing'; `trimtab signals run` lists"):
        said("signals", "run", "mismatch_std", "nothing")


def test_a_value_that_is_not_finite_is_shown_by_its_name(client: Client, said: Any) -> None:
    for step, loss in enumerate((0.5, math.nan, math.inf)):
        client.ingest(StepSummary(job="run", attempt=1, step=step, scalars={"loss": loss}))
    assert [line.split() for line in said("signals", "run", "loss").splitlines()[1:]] == [
        ["0", "0.5"],
        ["1", "nan"],
        ["2", "+inf"],
    ]
    assert said("signals", "run").splitlines()[1].split() == ["loss", "0", "to", "2", "+inf", "0.5", "0.5"]


def test_the_trail_is_told_as_text_and_as_lines(ill: Plant, client: Client, said: Any) -> None:
    lines = said("events", ill.job, "--jsonl").splitlines()
    assert [json.loads(line)["number"] for line in lines] == [event.number for event in client.events("run")]
    assert "attempt started" in said("events", "run")
    client.patch_controls("run", {"clip_high": 0.3}, reason="wider", issuer="ada")
    client.patch_controls("run", {"clip_high": None}, reason="over", issuer="ada")
    text = said("events", "run")
    assert "verdict changed  mismatch: inconclusive -> critical  " in text
    assert "incident inhibited  asymmetry; critical; explained by mismatch  " in text
    assert "mode changed  observe -> approve; by " in text
    assert "controls changed  clip_high - -> 0.3; by ada  wider\n" in text
    assert "controls changed  clip_high 0.3 -> -; by ada  over\n" in text
    some = said("events", "run", "--json", "--kind", "proposed", "--after", "1").splitlines()
    assert {json.loads(line)["kind"] for line in some} == {"proposed"}


def test_the_trail_is_followed(ill: Plant, client: Client, url: str) -> None:
    program = "from trimtab.api.cli import main; main()"
    command = [sys.executable, "-c", program, "events", "run", "--follow", "--json", "--url", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            known = len(list(client.events(ill.job)))
            numbers = [json.loads(process.stdout.readline())["number"] for _ in range(known)]
            client.set_mode("run", "observe", reason="enough")
            while len(numbers) < len(list(client.events("run"))):
                numbers.append(json.loads(process.stdout.readline())["number"])
            assert numbers == [event.number for event in client.events("run")]
        finally:
            process.kill()


def test_the_service_replays_a_job(ill: Plant, client: Client, told: Any, said: Any) -> None:
    assert said("replay", ill.job, "--server") == f"run: {client.job('run').rows} entries: identical\n"
    answer = told("replay", "run", "--server", "--set", "mode=observe", "--set", "policy.expire=50")
    assert answer["settings"] == {"mode": "observe", "policy.expire": 50}
    with pytest.raises(ClientError, match=r"settings\.nope: no such setting"):
        said("replay", "run", "--server", "--set", "nope=1")


def test_the_baselines_are_told(ill: Plant, said: Any) -> None:
    out = said("baselines", ill.job)
    assert "mean above 0.2 (mismatch, needs clip_fraction_positive above its own)" in out
    assert " (reward: collapse)" in out


@pytest.mark.parametrize("text", ["clip_high", "=3", "clip_high=[1]", 'clip_high={"a":1}'])
def test_what_is_no_change_is_told_before_anything_is_sent(text: str) -> None:
    with pytest.raises(UsageError):
        parsed([text])
