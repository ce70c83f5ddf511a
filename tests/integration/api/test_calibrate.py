"""A format's calibration from the command that makes it to the trainer and the agent that use it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from agent_runs import step_summary
from typer.testing import CliRunner

from trimtab.agent.config import AgentConfig
from trimtab.agent.state import State
from trimtab.api.calibration import CalibrationUseError, references
from trimtab.api.cli import app
from trimtab.api.cli.errors import UsageError
from trimtab.api.service import Service
from trimtab.hooks.calibration_file import LEVELS, CalibrationError, read_calibration
from trimtab.hooks.controls import Controls
from trimtab.trainer.config import ConfigError, load_config
from trimtab.trainer.run import STEPS, execute

TINY = [
    "task.digits=3",
    "model.width=32",
    "model.hidden=64",
    "warm_start.steps=300",
    "rollout.prompts=48",
    "rollout.group_size=8",
    "rollout.lag=2",
    "outliers.channels=2",
    "outliers.scale=4.0",
    "evaluation.prompts=0",
    "checkpoint.every=0",
]


def arguments(*settings: str) -> list[str]:
    return [word for setting in (*TINY, *settings) for word in ("--set", setting)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A calibration of NVFP4, and what the command told."""
    path = tmp_path_factory.mktemp("calibration") / "nvfp4.json"
    command = ["calibrate", "--format", "nvfp4", *arguments(), "--out", str(path), "--json"]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0
    return path, json.loads(done.stdout)


def test_what_is_in_the_file(made: tuple[Path, dict[str, Any]]) -> None:
    calibration, told = read_calibration(made[0]), made[1]
    assert (calibration.sampler_format, calibration.train_format, calibration.steps) == ("nvfp4", "bf16", 12)
    told_for = (calibration.ratio_reference, calibration.kv_format, calibration.objective)
    assert told_for == ("sampler", "none", "ppo")
    assert calibration.setup["model"]["width"] == 32
    assert calibration.levels["mismatch_std"].location > 0
    bounds = calibration.clip.bounds(Controls(ratio_reference="sampler"))
    assert told["clip_bounds"] == {"low": bounds.low, "high": bounds.high}
    assert bounds.low < math.log(0.8)


def test_in_a_log_the_steps_are_told_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # else a warm start of earlier has no steps to tell
    command = ["calibrate", "--format", "nvfp4", *arguments(), "--out", str(tmp_path / "x.json")]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    lines = done.stderr.splitlines()
    assert next(line for line in lines if line.startswith("calibrating: ")) == "calibrating: step 1 of 12"
    assert lines[-1] == "calibrating: step 12 of 12"
    assert "warm start: step 300 of 300" in lines


def steps_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / STEPS).read_text().splitlines()]


def run(folder: Path, path: Path, *settings: str) -> list[dict[str, Any]]:
    settings = (*TINY, "controls.sampler_format=nvfp4", f"shadow.calibration={path}", *settings)
    execute(load_config(None, ["steps=2", *settings]), url="memory:", job="calibrated", out=folder, attempt=0)
    return steps_of(folder)


@pytest.mark.parametrize("twin", [0, 1])
def test_training_has_calibrated_bounds_from_the_first_step(
    made: tuple[Path, dict[str, Any]], tmp_path: Path, twin: int
) -> None:
    bounds = read_calibration(made[0]).clip.bounds(Controls(ratio_reference="sampler"))
    first, second = run(tmp_path, made[0], f"shadow.every={twin}", "controls.clip_mode=calibrated")
    assert (first["clip_low"], first["clip_high"]) == (math.exp(bounds.low), math.exp(bounds.high))
    if not twin:  # nothing is learnt on the way
        assert (second["clip_low"], second["clip_high"]) == (first["clip_low"], first["clip_high"])


def test_without_a_calibration_and_a_twin_it_is_refused(tmp_path: Path) -> None:
    settings = load_config(None, [*TINY, "shadow.every=0", "controls.clip_mode=calibrated"])
    with pytest.raises(ConfigError, match="calibrated bounds need the BF16 twin or a calibration"):
        execute(settings, url="memory:", job="refused", out=tmp_path)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["controls.sampler_format=fp8-row"], "sampler_format: 'nvfp4' there, and fp8-row in this run"),
        (["controls.train_format=nvfp4"], "train_format: 'bf16' there, and nvfp4 in this run"),
        (["model.width=64"], "model.width: 32 there, and 64 in this run"),
        (["task.digits=4"], "task.digits: 3 there, and 4 in this run"),
        (["warm_start.seed=1"], "warm_start.seed: 0 there, and 1 in this run"),
        (["outliers.scale=8.0"], "outliers.scale: 4.0 there, and 8.0 in this run"),
        (["controls.ratio_reference=recomputed"], "ratio_reference: 'sampler' there, and recomputed in this run"),
        (["controls.kv_format=fp8"], "kv_format: 'none' there, and fp8 in this run"),
        (["controls.objective=cispo"], "objective: 'ppo' there, and cispo in this run"),
        (["rollout.temperature=0.5"], "rollout.temperature: 1.0 there, and 0.5 in this run"),
        (["rollout.lag=0"], "rollout.lag: 2 there, and 0 in this run"),
        (["rollout.lag=0", "asynchrony.mode=thread"], "rollout.lag: 2 there, and 0 in this run"),
        (["asynchrony.sync_every=2"], "asynchrony.sync_every: 1 there, and 2 in this run"),
        (["update.minibatches=4"], "update.minibatches: 2 there, and 4 in this run"),
        (["update.passes=2"], "update.passes: 1 there, and 2 in this run"),
    ],
)
def test_another_format_or_model_is_refused(
    made: tuple[Path, dict[str, Any]], tmp_path: Path, settings: list[str], told: str
) -> None:
    with pytest.raises(ConfigError, match=r"shadow\.calibration: ") as caught:
        run(tmp_path / "run", made[0], *settings)
    assert told in str(caught.value)
    assert not (tmp_path / "run" / STEPS).exists()


def test_a_format_that_the_run_switches_to_will_do(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    change = 'schedule=[{step=1, controls={sampler_format="nvfp4", clip_mode="calibrated"}}]'
    rows = run(tmp_path, made[0], "controls.sampler_format=bf16", change)
    assert [row["clip_low"] < 0.79 for row in rows] == [False, True]


def test_controls_that_the_run_never_has_together_are_refused(
    made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    change = 'schedule=[{step=1, controls={sampler_format="nvfp4", ratio_reference="recomputed"}}]'
    with pytest.raises(ConfigError, match="ratio_reference: 'sampler' there, and recomputed in this run"):
        run(tmp_path, made[0], "controls.sampler_format=bf16", change)


def test_a_precision_that_only_says_how_it_is_computed_does_not_matter(
    made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    assert len(run(tmp_path, made[0], "model.gradient_checkpointing=true", "model.execution=emulated")) == 2


def changed(path: Path, folder: Path, **fields: Any) -> Path:
    other = folder / "other.json"
    other.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return other


def level_of(name: str, scale: float = 0.1) -> dict[str, Any]:
    """The levels of a calibration, with that one as given."""
    return {level: {"location": 0.1, "scale": 0.1} for level in LEVELS} | {name: {"location": 0.1, "scale": scale}}


def test_files_that_are_no_calibration(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="version: 3, but this program reads version 2; calibrate again"):
        read_calibration(changed(made[0], tmp_path, version=3))
    old = {name: value for name, value in json.loads(made[0].read_text()).items() if name != "kv_format"}
    (tmp_path / "old.json").write_text(json.dumps(old | {"version": 1}))
    with pytest.raises(CalibrationError, match="version: 1, but this program reads version 2; calibrate again"):
        read_calibration(tmp_path / "old.json")
    with pytest.raises(CalibrationError, match=r"FormatCalibration\.steps: 'many' is not int"):
        read_calibration(changed(made[0], tmp_path, steps="many"))
    for field, value, told in (
        ("steps", -3, "steps: -3; a calibration is learnt from one step or more"),
        ("entropy", -1.0, r"entropy: -1\.0 nats"),
        ("levels", level_of("mismatch_std", scale=-1.0), r"levels\.mismatch_std: .*is not negative"),
        ("clip", {"negative": {"update": {"tokens": -1.0}}}, r"clip\.negative\.update\.tokens: -1\.0"),
        ("clip", {"negative": {"updates": {}}}, r"clip\.negative\.updates: is no field of a calibration"),
        ("entrpoy", 1.0, r"entrpoy: is no field of a calibration"),
        ("levels", level_of("mismatch"), r"levels\.mismatch: is no level of a calibration; these are mismatch_std, "),
        (
            "clip",
            {"positive": {"shadow": {"weights": {"99999": 1.0}}}},
            r"clip\.positive\.shadow\.weights: .*bin 99999",
        ),
    ):
        with pytest.raises(CalibrationError, match=told):
            read_calibration(changed(made[0], tmp_path, **{field: value}))
    with pytest.raises(CalibrationError, match="cannot be read"):
        read_calibration(tmp_path / "none.json")
    with pytest.raises(ConfigError, match=r"shadow\.calibration: .*version: 3"):
        run(tmp_path / "run", changed(made[0], tmp_path, version=3))
    with pytest.raises(CalibrationUseError, match=r"levels\.twin_asymmetry: is missing"):
        references([changed(made[0], tmp_path, levels={"mismatch_std": {"location": 0.1, "scale": 0.1}})])
    with pytest.raises(CalibrationUseError, match="'nvfp4' has another file already"):
        references([made[0], made[0]])


def test_what_cannot_be_calibrated(tmp_path: Path) -> None:
    def calibrate(number_format: str, *settings: str) -> None:
        command = ["calibrate", "--format", number_format, *arguments(*settings), "--out", str(tmp_path / "x.json")]
        CliRunner().invoke(app, command, catch_exceptions=False)

    with pytest.raises(UsageError, match=r"controls\.sampler_format: 'fp9' is none of"):
        calibrate("fp9")
    nowhere = ["calibrate", "--format", "nvfp4", "--out", str(tmp_path / "nowhere" / "x.json")]
    with pytest.raises(UsageError, match=r"--out: .*nowhere is no folder that can be written to"):
        CliRunner().invoke(app, nowhere, catch_exceptions=False)
    with pytest.raises(CalibrationUseError, match="mismatch_std: only 0 steps have enough tokens"):
        calibrate("nvfp4", "rollout.prompts=2", "rollout.group_size=2")
    assert not list(tmp_path.iterdir())


def judged(config: AgentConfig, path: Path, *, ratio_reference: str = "sampler", entropy: float) -> tuple[State, str]:
    """The asymmetry verdict on a job without a twin whose punished tokens lie far below the others."""
    service = Service.open(path, default_config=config)
    applied = Controls(ratio_reference=ratio_reference, sampler_format="nvfp4")  # type: ignore[arg-type]
    tail, body = [-3.0] * 150, [0.3] * 150 + [0.0] * 850
    for step in range(6):
        summary = step_summary(step, update=([*tail, *[0.0] * 850], body), entropy=entropy, applied=applied)
        service.ingest(summary)
    verdict = service.state("run").verdicts["asymmetry"]
    service.close()
    return verdict.state, verdict.message


def test_an_agent_judges_by_it_while_the_policy_is_as_it_was(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    calibrated = AgentConfig(references=references([made[0]]))
    usual = read_calibration(made[0]).entropy
    state, message = judged(calibrated, tmp_path / "a.db", entropy=usual)
    assert state is State.CRITICAL
    assert message.startswith("against the calibration of nvfp4: negative tail")
    assert judged(calibrated, tmp_path / "b.db", entropy=usual / 2)[1].startswith("no recent BF16 twin")
    elsewhere = judged(calibrated, tmp_path / "c.db", entropy=usual, ratio_reference="recomputed")
    assert elsewhere[1].startswith("no recent BF16 twin")
    assert judged(AgentConfig(), tmp_path / "d.db", entropy=usual)[0] is State.INCONCLUSIVE


def test_the_mismatch_is_told_beside_its_calibrated_level(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    calibration = read_calibration(made[0])
    service = Service.open(tmp_path / "a.db", default_config=AgentConfig(references=references([made[0]])))
    applied = Controls(ratio_reference="sampler", sampler_format="nvfp4")
    wide = [-0.4] * 500 + [0.4] * 500
    for step in range(6):
        ratios = {"update": (wide, wide), "mismatch": (wide, wide)}
        service.ingest(step_summary(step, **ratios, entropy=calibration.entropy, applied=applied))  # type: ignore[arg-type]
    verdict = service.state("run").verdicts["mismatch"]
    service.close()
    level = calibration.levels["mismatch_std"].location
    assert verdict.evidence["mismatch_std_calibrated"] == level
    assert f"calibrated {level:.3f}" in verdict.message
