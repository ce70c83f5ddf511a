from __future__ import annotations

from pathlib import Path

import pytest
from tiny_lab import TINY, tiny_lab

from trimtab.agent.state import Mode
from trimtab.api.lab.cells import load_lab, merged
from trimtab.api.lab.file import LabError, read_lab
from trimtab.trainer.scenarios import SCENARIOS


def written(folder: Path, text: str) -> Path:
    path = folder / "lab.toml"
    path.write_text(text)
    return path


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(LabError) as caught:
        load_lab(written(folder, text))
    return str(caught.value)


def test_cells_are_every_combination_that_goes_together(tmp_path: Path) -> None:
    lab = load_lab(tiny_lab(tmp_path))
    assert [cell.name for cell in lab.cells] == [
        "bf16/none/s0",
        "bf16/none/s1",
        "nvfp4/none/s0",
        "nvfp4/none/s1",
        "nvfp4/centering@2/s0",
        "nvfp4/centering@2/s1",
        "nvfp4/centering@8/s0",
        "nvfp4/centering@8/s1",
    ]
    last = lab.cells[-1]
    assert (last.seed, last.config.seed, last.job) == (1, 1, "nvfp4.centering-at-8.s1")
    assert [last.config.controls_at(step).centering for step in (7, 8)] == [False, True]
    assert last.config.controls_at(0).sampler_format == "nvfp4"


def test_further_axes_multiply(tmp_path: Path) -> None:
    axes = '[[axes.lag]]\nname = "lag-0"\n[[axes.lag]]\nname = "lag-4"\nset = { rollout.lag = 4 }'
    cells = load_lab(tiny_lab(tmp_path, axes)).cells
    assert len(cells) == 16
    assert cells[-1].name == "nvfp4/centering@8/lag-4/s1"
    assert {cell.config.rollout.lag for cell in cells if cell.variants["lag"] == "lag-4"} == {4}


def test_a_correction_without_a_step_holds_from_the_start(tmp_path: Path) -> None:
    (cell,) = load_lab(written(tmp_path, 'corrections = [{ name = "mis", controls = { lr_scale = 0.5 } }]')).cells
    assert cell.name == "base/mis/s0"
    assert cell.config.controls_at(0).lr_scale == 0.5


def test_a_scenarios_run_is_a_base_that_presets_still_count_over(tmp_path: Path) -> None:
    text = 'base = "cliff/unattended"\nformats = [{ name = "rl", set = { recipe = "nvfp4-rl" } }, { name = "as-is" }]'
    preset, as_is = load_lab(written(tmp_path, text)).cells
    original = next(run.config for run in SCENARIOS["cliff"].runs if run.name == "unattended")
    assert as_is.config == original
    assert preset.config.outliers == original.outliers
    assert (preset.config.controls.train_format, preset.config.controls.backward) == ("nvfp4-46", "dequantized")
    assert preset.config.controls.sampler_format == "nvfp4"


def test_a_toml_file_is_a_base(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("steps = 7\n[rollout]\nlag = 2\nprompts = 4\n")
    (cell,) = load_lab(written(tmp_path, 'base = "run.toml"\nrun = { rollout = { lag = 1 } }')).cells
    assert (cell.config.steps, cell.config.rollout.lag, cell.config.rollout.prompts) == (7, 1, 4)


def test_an_agent_on_duty(tmp_path: Path) -> None:
    text = 'corrections = [{ name = "agent", agent = "auto", remedies = ["calibrated_clipping"] }]'
    (cell,) = load_lab(written(tmp_path, text)).cells
    assert cell.mode is Mode.AUTO
    assert cell.agent.policy.allow == ("calibrated_clipping",)


def test_an_agent_that_only_observes_at_first(tmp_path: Path) -> None:
    text = 'run = { steps = 9 }\ncorrections = [{ name = "agent", agent = "auto", at = [0, 5] }, { name = "none" }]'
    first, late, none = load_lab(written(tmp_path, text)).cells
    assert [cell.name for cell in (first, late)] == ["base/agent@0/s0", "base/agent@5/s0"]
    assert [late.mode_at(step) for step in (0, 4, 5, 8)] == [Mode.OBSERVE, Mode.OBSERVE, Mode.AUTO, Mode.AUTO]
    assert (first.mode_at(0), none.mode_at(8)) == (Mode.AUTO, Mode.OBSERVE)
    assert first.config == late.config == none.config
    assert len({cell.key for cell in (first, late, none)}) == 3


def test_a_table_of_another_kind_replaces_the_whole_table() -> None:
    below = {"task": {"kind": "running_sum", "digits": 3}, "rollout": {"lag": 1}}
    over = {"task": {"kind": "questions", "path": "x"}, "rollout": {"prompts": 4}}
    assert merged(below, over) == {"task": over["task"], "rollout": {"lag": 1, "prompts": 4}}
    assert merged(below, {"task": {"digits": 4}})["task"] == {"kind": "running_sum", "digits": 4}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("seed = 1", "seed: Extra inputs are not permitted"),
        ("seeds = []", "seeds: Tuple should have at least 1 item"),
        ("seeds = [true]", "seeds.0: Input should be a valid integer (given True)"),
        ("seeds = [-1]", "seeds.0: Input should be greater than or equal to 0 (given -1)"),
        ('corrections = [{ name = "c", at = "x" }]', "corrections.0.at: Input should be a step from 0 on, or a list"),
        ('corrections = [{ name = "c", at = [1, true] }]', "corrections.0.at: Input should be a step from 0 on"),
        ('corrections = [{ name = "c", controls = { lr_scale = [] } }]', "Input should be true or false, a number"),
        ("seeds = [1, 1]", "seeds: 1 is there twice"),
        ("run = { seed = 3 }", "run.seed: 3 is overruled by seeds"),
        ('formats = [{ name = "a" }, { name = "a" }]', "formats: 'a' is there twice"),
        ('formats = [{ name = "a/b" }]', "formats.0.name: String should match pattern"),
        ('axes = { format = [{ name = "a" }] }', "axes.format: the formats have a table of their own"),
        ("axes = { lag = [] }", "axes.lag: has no variant"),
        ('corrections = [{ name = "c", at = 3 }]', "corrections.0.at: 3 says when"),
        (
            'run = { steps = 4 }\ncorrections = [{ name = "a", agent = "auto", at = 4 }]',
            "base/a@4/s0: at: 4 is not before the end, steps = 4",
        ),
        (
            'corrections = [{ name = "a", agent = "auto" }, { name = "b", agent = "auto", at = 0 }]',
            "base/b@0/s0: is the same run as base/a/s0",
        ),
        ('corrections = [{ name = "c", controls = { clip = 1 } }]', "corrections.0.controls.clip: no such control"),
        ('corrections = [{ name = "c", controls = { clip_low = 2 } }]', "corrections.0.controls.clip_low: 2"),
        ('corrections = [{ name = "c", at = [3, 3], controls = { lr_scale = 2 } }]', "at: 3 is there twice"),
        ('corrections = [{ name = "c", remedies = [] }]', "would change nothing, since agent is 'observe'"),
        ('corrections = [{ name = "c", agent = "auto", remedies = ["x"] }]', "remedies: 'x' is none of"),
        ('corrections = [{ name = "c", only = { lag = ["x"] } }]', "corrections.0.only.lag: there is no such axis"),
        ('corrections = [{ name = "c", only = { format = ["x"] } }]', "corrections.0.only.format: 'x' matches none"),
        ("run = { steps = 0 }", "base/none/s0: steps: Input should be greater than or equal to 1 (given 0)"),
        ("run = { rollouts = 0 }", "base/none/s0: rollouts: Extra inputs are not permitted"),
        (
            'formats = [{ name = "a", set = { controls = { sampler_format = "x" } } }]',
            "a/none/s0: controls.sampler_format: 'x' is none of",
        ),
        (
            "run = { model = { width = 20 } }\n[[formats]]\nname = 'a'\nset = { controls.sampler_format = 'nvfp4' }",
            "20",
        ),
        (
            "run = { steps = 4 }\ncorrections = [{ name = 'c', at = 4, controls = { lr_scale = 2 } }]",
            "schedule: step 4",
        ),
        ('formats = [{ name = "a" }, { name = "b" }]', "b/none/s0: is the same run as a/none/s0"),
        ('base = "cliff"', "base: 'cliff' is no TOML file and none of cliff/bf16"),
        ('base = "nowhere.toml"', "base: nowhere.toml: [Errno 2]"),
        ("seeds = [", "Invalid"),
        ('formats = [{ name = "a", set = { seed = 5 } }]', "formats.0.set.seed: 5 is overruled by the lab's seeds"),
        ('corrections = [{ name = "c", only = { format = [] } }]', "corrections.0.only.format: is empty"),
        ("run = { schedule = 3 }", "run.schedule: 3 is no list of changes"),
        (
            'corrections = [{ name = "x", at = 2, controls = { lr_scale = 2 } }, '
            '{ name = "x-at-2", controls = { lr_scale = 3 } }]',
            "base/x-at-2/s0: would report under the same name as base/x@2/s0, base.x-at-2.s0; rename one",
        ),
        (
            'run = { shadow = { calibration = "none.json" } }',
            "base/none/s0: shadow.calibration: none.json: cannot be read",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(tmp_path: Path, text: str, told: str) -> None:
    (line,) = refusal(tmp_path, text).splitlines()
    assert told in line


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="No such file"):
        read_lab(tmp_path / "none.toml")


def test_cells_are_chosen_by_glob(tmp_path: Path) -> None:
    lab = load_lab(tiny_lab(tmp_path))
    assert [cell.name for cell in lab.chosen("nvfp4/centering@*/s0")] == [
        "nvfp4/centering@2/s0",
        "nvfp4/centering@8/s0",
    ]
    with pytest.raises(LabError, match="matches no cell"):
        lab.chosen("mxfp8/*")


def test_the_key_tells_runs_apart_and_nothing_else(tmp_path: Path) -> None:
    first = load_lab(tiny_lab(tmp_path)).cells
    (tmp_path / "other").mkdir()
    retitled = load_lab(written(tmp_path / "other", TINY.replace("tiny <lab>", "another title"))).cells
    assert [cell.key for cell in first] == [cell.key for cell in retitled]
    longer = load_lab(written(tmp_path, TINY.replace("steps = 12", "steps = 13"))).cells
    assert not {cell.key for cell in first} & {cell.key for cell in longer}
