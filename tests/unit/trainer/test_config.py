"""Configurations that must not reach step 0, and how they are told; and those that must."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.hooks.controls import Controls
from trimtab.trainer.config import ConfigError, RunConfig, load_config, validated


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["rollout.lags=2"], r"rollout\.lags: Extra inputs are not permitted \(given 2\)"),
        (["rollout.lag=-1"], r"rollout\.lag: .*greater than or equal to 0 \(given -1\)"),
        (["rollout.group_size=1"], r"rollout\.group_size: .*greater than or equal to 2"),
        (["rollout.temperature=0.0"], r"rollout\.temperature: .*greater than or equal to 0\.01"),
        (["rollout.temperature=inf"], r"rollout\.temperature: .*less than or equal to 100"),
        (["update.lr=inf"], r"update\.lr: .*finite number"),
        (["warm_start.lr=inf"], r"warm_start\.lr: .*finite number"),
        ([f"outliers.scale={2.0**999}"], r"outliers\.scale: .*less than or equal to"),
        *(
            ([f"{field}={2**63}"], rf"{field}: .*less than {2**63}")
            for field in ("seed", "warm_start.seed", "evaluation.seed", "outliers.seed")
        ),
        (
            ["asynchrony.mode=thread", "asynchrony.sync_every=3"],
            r"^asynchrony\.max_staleness: 1 cannot be kept with weights every sync_every = 3 steps; allow at least 2$",
        ),
        (["asynchrony.in_flight=keep"], r"^asynchrony\.in_flight: 'keep' says .* thread or process, or leave it out$"),
        (["asynchrony.max_staleness=3"], r"^asynchrony\.max_staleness: 3 bounds .* weights of a fixed age$"),
        (["seed=true"], r"^seed: Input should be a valid integer \(given True\)$"),
        (
            ["schedule=[{step=3, controls={lr_scale=[1]}}]"],
            r"^schedule\.0\.controls\.lr_scale: Input should be true or false, a number, or a word \(given \[1\]\)$",
        ),
        (
            ["task.kind=reasoning_gym", "task.dataset=x", "task.threshold=3"],
            r"^task\.threshold: Input should be a number from 0 to 1, or 'none' \(given 3\)$",
        ),
        (["asynchrony.mode=process", "rollout.lag=2"], r"rollout\.lag: 2 fixes the age .* give one of them"),
        (["asynchrony.mode=fast"], r"asynchrony\.mode: .*'off', 'thread' or 'process'"),
        (["model=5"], r"model: Input should be a valid dictionary .*given 5"),
        (["task=5"], r"task: Input should be a valid dictionary .*given 5"),
        (["algorithm=[1]"], r"algorithm: \[1\] is none of grpo, dapo"),
        (["recipe={a=1}"], r"recipe: \{'a': 1\} is none of bf16"),
        (["controls.clip_low=1.5"], r"clip_low: 1\.5 is not a number in \[0, 1\]"),
        (["controls.clip_low=3.0"], r"^controls\.clip_low: 3\.0 is not a number in \[0, 1\]$"),
        (
            ["controls.clip_hi=0.3"],
            r"^controls\.clip_hi: no such control; did you mean clip_high .* are objective, aggr",
        ),
        (
            ["schedule=[{step=3, controls={clip_hi=1}}]"],
            r"^schedule: at step 3, clip_hi: no such control; did you mean",
        ),
        (["controls=3"], r"^controls: Input should be"),
        (["controls.clip_low=-0.2"], r"clip_low: -0\.2 is not a number in \[0, 1\]"),
        (["model.width=60", "model.heads=8"], r"^model\.width: 60 is not divisible by heads = 8$"),
        (["update.minibatches=30"], r"update\.minibatches: 30 is more than rollout\.prompts = 24"),
        (["controls.backward=quantised"], r"controls\.backward: .*'dequantized' \(given 'quantised'\)"),
        (["recipe=nvfp5"], r"recipe: 'nvfp5' is none of bf16, fp8-tensor, .*nvfp4-rl"),
        (["algorithm=grpo2"], r"algorithm: 'grpo2' is none of grpo, dapo"),
        (["rollout.top_p=0.9"], r"^rollout\.top_p: 0\.9 renormalises .* Sample with top_p = 1"),
        (["model.kind=huggingface"], r"^model\.path: None, with kind = 'huggingface': give the model's folder"),
        (["model.kind=smollm2", "model.path=x"], r"^model\.path: x, with kind = 'smollm2': .*leave it out"),
        (["task.kind=questions", "task.path=x.jsonl"], r"task\.kind: 'questions' is asked in text.*set model\.kind"),
        (["outliers.channels=65"], r"outliers\.channels: 65 is more than model\.width = 64"),
        (["outliers.scale=10.0"], r"^outliers\.scale: 10\.0 is not a power of two"),
        (["warm_start.error_rate=1.5"], r"warm_start\.error_rate: .*less than or equal to 1"),
        (["steps=0"], r"steps: .*greater than or equal to 1"),
        (["rollout.lag"], r"'rollout\.lag': write an override as section\.key=value"),
        (["rollout.lag=1", "rollout.lag.deep=1"], r"lag is a value, not a section"),
        (["schedule=[{step=3, controls={centring=true}}]"], r"centring: no such control"),
        (
            ["steps=5", "schedule=[{step=5, controls={lr_scale=0.5}}]"],
            r"schedule: step 5 is not before the end, steps = 5",
        ),
    ],
)
def test_bad_settings_are_refused_with_the_field_named(overrides: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_config(None, overrides)


def test_a_missing_file_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as told:
        load_config(tmp_path / "none.toml")
    assert str(told.value) == f"{tmp_path / 'none.toml'}: No such file or directory"


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as told:
        load_config(None, ["rollout.lag=-1", "steps=0"])
    assert "rollout.lag" in str(told.value)
    assert "steps" in str(told.value)


def test_without_a_mode_what_is_as_by_default_may_be_said_and_weights_may_be_published_less_often() -> None:
    settings = ["asynchrony.max_staleness=1", "asynchrony.in_flight=wait", "asynchrony.sync_every=3"]
    assert load_config(None, settings).asynchrony.sync_every == 3


def test_file_then_overrides(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('seed = 3\n[rollout]\nlag = 2\n[controls]\nratio_reference = "recomputed"\nclip_high = 0.28\n')
    config = load_config(path, ["rollout.lag=4", "controls.sampler_format=nvfp4-46"])
    assert (config.seed, config.rollout.lag) == (3, 4)
    assert config.controls.clip_high == 0.28
    assert config.controls.sampler_format == "nvfp4-46"


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("seed = = 3")
    with pytest.raises(ConfigError, match=r"run\.toml"):
        load_config(path)
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        load_config(tmp_path / "missing.toml")


def test_schedule_changes_only_what_it_names_from_its_step_on() -> None:
    config = load_config(
        None,
        ['schedule=[{step=5, controls={lr_scale=0.5}}, {step=2, controls={sampler_format="nvfp4"}}]'],
    )
    assert [config.controls_at(step).sampler_format for step in (0, 1, 2, 9)] == ["bf16", "bf16", "nvfp4", "nvfp4"]
    assert [config.controls_at(step).lr_scale for step in (0, 4, 5)] == [1.0, 1.0, 0.5]


def test_configuration_survives_json() -> None:
    config = load_config(None, ["schedule=[{step=5, controls={lr_scale=0.5}}]", "controls.importance_high=inf"])
    assert RunConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[3].glob("configs/*.toml")), ids=lambda path: path.stem)
def test_every_configuration_that_ships_is_valid(path: Path) -> None:
    config = load_config(path)
    assert config.steps > 0
    assert config.controls.conflict() is None


def test_the_dapo_configuration_is_dapo_and_nothing_else() -> None:
    config = load_config(Path(__file__).parents[3] / "configs/dapo.toml")
    assert config == load_config(None, ["steps=110", "algorithm=dapo"])


def test_the_smollm2_configuration_trains_a_text_task_in_nvfp4() -> None:
    config = load_config(Path(__file__).parents[3] / "configs/smollm2-countdown.toml")
    assert (config.model.kind, config.task.kind, config.recipe) == ("smollm2", "reasoning_gym", "nvfp4-rl")
    assert config.controls.sampler_format == config.controls.train_format == "nvfp4-46"


def test_the_outlier_configuration_is_the_demos_cliff() -> None:
    from trimtab.trainer.scenarios import SCENARIOS

    cliff = next(run.config for run in SCENARIOS["cliff"].runs if run.name == "agent")
    assert load_config(Path(__file__).parents[3] / "configs/nvfp4-outliers.toml") == cliff


def test_an_algorithm_and_a_recipe_stand_for_controls_that_the_file_goes_over() -> None:
    config = load_config(None, ["algorithm=dapo", "recipe=nvfp4-rl", "controls.clip_high=0.3"])
    controls = config.controls
    assert (controls.clip_low, controls.clip_high, controls.aggregation) == (0.2, 0.3, "token_mean")
    assert (controls.dynamic_sampling, controls.overlong_penalty) == (True, 1.0)
    assert (controls.train_format, controls.sampler_format, controls.backward) == ("nvfp4-46",) * 2 + ("dequantized",)
    assert controls.ratio_reference == "sampler"


def test_one_control_in_the_file_leaves_the_others_at_the_runs_defaults() -> None:
    assert load_config(None, ["controls.clip_low=0.3"]).controls.ratio_reference == "sampler"


def test_a_preset_beside_a_whole_controls_object_is_refused() -> None:
    with pytest.raises(ValueError, match="recipe: 'mxfp8' would change nothing"):
        RunConfig(recipe="mxfp8", controls=Controls())
    assert validated({"recipe": "mxfp8", "controls": {"clip_low": 0.1}}).controls.train_format == "mxfp8"


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"bad\.toml: 'utf-8' codec can't decode byte 0xff"):
        load_config(path)
