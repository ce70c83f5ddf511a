"""What a user gets: the wheel, unpacked where nothing but numpy can be imported."""

import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

PROJECT_FILES = ("pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(root: Path, folders: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of this tree, so that building leaves no trace in it."""
    copy = tmp_path_factory.mktemp("checkout")
    out = tmp_path_factory.mktemp("wheel")
    for name in ("trimtab", *folders):
        shutil.copytree(root / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in PROJECT_FILES:
        shutil.copy(root / name, copy / name)
    build = ["pip", "wheel", "-q", "--no-index", "--no-build-isolation", "--no-deps", "-w", str(out), "."]
    done = subprocess.run(
        [sys.executable, "-m", *build], capture_output=True, text=True, timeout=300, cwd=copy, check=False
    )
    assert done.returncode == 0, done.stderr
    (built,) = out.glob("trimtab-*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel beside a link to numpy: all that a bare install has."""
    target = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    packages = Path(str(distribution("numpy").locate_file("")))
    for entry in (*packages.glob("numpy"), *packages.glob("numpy.libs")):
        (target / entry.name).symlink_to(entry)
    return target


def test_wheel_holds_every_module(root: Path, sources: tuple[Path, ...], site: Path) -> None:
    for path in sources:
        inside = path.relative_to(root)
        name = inside if inside.parts[0] == "trimtab" else Path("trimtab") / inside
        assert (site / name).is_file(), f"{inside} is not in the wheel"


@pytest.mark.parametrize(
    "name", ["py.typed", "hooks/measure.c", "trainer/quant/kernels.c", "storage/migrations/script.py.mako"]
)
def test_wheel_holds_data(site: Path, name: str) -> None:
    assert (site / "trimtab" / name).is_file()


def test_wheel_holds_the_whole_dashboard(root: Path, site: Path) -> None:
    served = [path for path in (root / "api" / "static").rglob("*") if path.is_file()]
    assert served, "api/static is empty"
    for path in served:
        assert (site / "trimtab" / path.relative_to(root)).is_file(), f"{path.relative_to(root)} is not in the wheel"


def test_wheel_holds_nothing_else(site: Path) -> None:
    top = {entry.name for entry in site.iterdir() if not entry.name.startswith("numpy")}
    assert {name.partition("-")[0] for name in top} == {"trimtab"}


def test_wheel_works_with_numpy_alone(site: Path, tmp_path: Path) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(site)!r})
import numpy as np
import trimtab, trimtab.hooks, trimtab.hooks.sketch, trimtab.hooks.controls
assert trimtab.__file__.startswith({str(site)!r}), trimtab.__file__
emitter = trimtab.attach("memory:", job="bare")
rows = np.zeros((2, 3), dtype=np.float32)
logprobs = {{"train_logprobs": rows, "old_logprobs": rows, "rollout_logprobs": rows}}
emitter.observe(**logprobs, advantages=rows + 1.0, loss_mask=rows + 1.0)
controls = emitter.end_step(step=0, scalars={{"reward_mean": 0.5}})
assert controls.clip_low == trimtab.Controls().clip_low
"""
    # -S leaves the environment's packages out, -I the variables and folders that would bring them back.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_command_of_a_bare_install_says_what_to_install(site: Path, tmp_path: Path) -> None:
    (scripts,) = (point for point in Distribution.at(dist_info(site)).entry_points if point.group == "console_scripts")
    assert scripts.name == "trimtab"
    program = (
        f"import sys; sys.path.insert(0, {str(site)!r}); from {scripts.module} import {scripts.attr}; {scripts.attr}()"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, "status"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "trimtab: typer is not installed; the command line needs: pip install 'trimtab[agent]'\n"


def dist_info(site: Path) -> Path:
    (found,) = site.glob("trimtab-*.dist-info")
    return found
