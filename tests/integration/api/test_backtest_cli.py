"""`trimtab backtest`, and `trimtab replay` under other settings, as a person and a script use them."""

import gzip
import json
from pathlib import Path

import pytest
from agent_runs import Plant
from api_runs import trimtab

from trimtab.agent.state import Mode
from trimtab.api.service import Service
from trimtab.storage.ledger_file import LedgerFileError, read


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An agent's database with a healthy run and one that turns noisy at step 12; the noisy one exported; labels."""
    where = tmp_path_factory.mktemp("labelled")
    service = Service.open(where / "agent.db")
    for job, noisy_from in (("calm", 1000), ("noisy", 12)):
        service.register(job, config=None, mode=Mode.AUTO, issuer="me", reason="to be labelled")
        plant = Plant(seed=0, noisy_from=noisy_from, job=job)
        for _ in range(40):
            plant.obey(service.ingest(plant.advance()).command)
    service.close()
    trimtab("export", "noisy", "--db", where / "agent.db", "--out", where / "noisy.jsonl.gz")
    (where / "labels.toml").write_text(
        '[[run]]\nfile = "agent.db"\njob = "calm"\nlabel = "healthy"\n\n'
        '[[run]]\nfile = "noisy.jsonl.gz"\nlabel = "failing"\ncause = 12\n'
    )
    return where


def test_recorded_runs_are_scored(folder: Path) -> None:
    scores = json.loads(trimtab("backtest", folder, "--json").stdout)
    calm, noisy = scores["runs"]
    assert (calm["steps"], calm["alerts"]) == (40, [])
    assert 12 <= noisy["alerts"][0]["at"] <= 17
    assert scores["delay"]["median"] == noisy["alerts"][0]["at"] - 12
    assert scores["in_time"] == 1
    assert (scores["false_alarms"]["alarms"], scores["false_alarms"]["steps"]) == (0, 52)


def test_the_table_says_the_same(folder: Path) -> None:
    lines = trimtab("backtest", folder).stdout.splitlines()
    assert any(line.split()[:3] == ["agent.db", "healthy", "40"] for line in lines)
    assert any(line.startswith("1 of 1 failing runs were seen") for line in lines)
    assert lines[-1].split()[:5] == ["all", "together", "52", "0", "0.000"]


def test_other_settings_score_otherwise(folder: Path, tmp_path: Path) -> None:
    deaf = tmp_path / "deaf.toml"
    deaf.write_text("[detectors.mismatch]\nstd_limit = 9.0\n[detectors.asymmetry]\ngap_limit = 9.0\n")
    scores = json.loads(trimtab("backtest", folder, "--config", deaf, "--json").stdout)
    assert scores["settings"]["detectors"]["mismatch"]["std_limit"] == 9.0
    assert not {"mismatch", "asymmetry"} & {alert["what"] for run in scores["runs"] for alert in run["alerts"]}


def test_drawn_runs_are_scored_by_several_processes() -> None:
    options = ("--small", "--seeds", "2", "--steps", "50", "--onsets", "40", "--horizon", "6", "--only", "NaN in loss")
    done = trimtab("backtest", "--synthetic", *options, "--jobs", "2", "--json")
    scores = json.loads(done.stdout)
    (found,) = scores["detections"]
    assert (found["delay"]["runs"], found["delay"]["worst"], found["met"]) == (2, 0, True)
    assert (found["seen_by"], found["most_alerts"]) == ({"nonfinite": 2}, 1)
    assert scores["false_alarms"]["steps"] == 2 * 50


MISTAKES = {
    "nothing to score": ([], "give a folder of labelled runs, or --synthetic"),
    "both": (["FOLDER", "--synthetic"], "and not both"),
    "no labels": (["EMPTY"], "labels.toml"),
    "no scenario": (["--synthetic", "--only", "earthquake"], "'earthquake' matches no scenario; there are healthy"),
    "no steps": (["--synthetic", "--onsets", "soon"], "'soon' is not a list of steps"),
    "onsets that go back": (["--synthetic", "--onsets", "500,200"], "--onsets: (500, 200) must be"),
    "too short": (["--synthetic", "--steps", "100"], "--steps: 100 must be above the first onset, 200"),
    "no settings": (["FOLDER", "--config", "/no/such.toml"], "--config: /no/such.toml: "),
    "no such setting": (["FOLDER", "--config", "WRONG"], "windov: no such setting"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_one_line(folder: Path, tmp_path: Path, mistake: str) -> None:
    arguments, told = MISTAKES[mistake]
    (tmp_path / "wrong.toml").write_text("windov = 3")
    places = {"FOLDER": folder, "EMPTY": tmp_path, "WRONG": tmp_path / "wrong.toml"}
    done = trimtab("backtest", *(places.get(one, one) for one in arguments), check=False)
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith("error: ")
    assert told in done.stderr


def test_replay_under_a_settings_file_lists_the_decisions_that_change(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('mode = "observe"\n')
    packed = folder / "noisy.jsonl.gz"
    (outcome,) = json.loads(trimtab("replay", packed, "--config", other, "--json").stdout)["jobs"]
    assert outcome["identical"] is True  # the mode was set by a person, who is in the ledger
    other.write_text("[detectors.mismatch]\nstd_limit = 9.0\n[detectors.asymmetry]\ngap_limit = 9.0\n")
    (outcome,) = json.loads(trimtab("replay", packed, "--config", other, "--json").stdout)["jobs"]
    assert "incident_firing" in {event["kind"] for event in outcome["gone"]}
    assert not [event for event in outcome["added"] if event["kind"] == "incident_firing"]
    told = trimtab("replay", packed, "--config", other).stdout
    assert "differs under these settings" in told
    assert any(line.split()[:1] == ["-"] and "incident firing" in line for line in told.splitlines())


def test_a_single_setting_goes_over_those_of_the_file(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("[detectors.mismatch]\nstd_limit = 9.0\n")
    options = ("--config", other, "--set", "detectors.mismatch.std_limit=0.2", "--json")
    assert json.loads(trimtab("replay", folder / "noisy.jsonl.gz", *options).stdout)["identical"] is True


def test_a_packed_export_is_the_same_file_each_time_and_says_when_it_is_cut(folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.jsonl.gz"
    trimtab("export", "noisy", "--db", folder / "agent.db", "--out", again)
    assert again.read_bytes() == (folder / "noisy.jsonl.gz").read_bytes()
    plain = trimtab("export", "noisy", "--db", folder / "agent.db").stdout
    assert gzip.decompress(again.read_bytes()).decode() == plain
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(again.read_bytes()[:-1000])
    with pytest.raises(LedgerFileError, match="cannot be read"):
        read(cut)
