"""Arming an environment, and taking that back."""

from __future__ import annotations

from pathlib import Path

from armed_runs import Environment, training

from trimtab.hooks.armed.install import MODULE, PTH

HANDLES = "import _signal; print(_signal.getsignal(_signal.SIGURG) != _signal.SIG_DFL)"


def test_armed_and_undone_leaves_no_trace(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    before = sorted(environment.site.rglob("*"))
    assert environment.answer("arm", "--status")["armed"] == "no"
    assert environment.answer("arm")["armed"] == "yes"
    assert environment.code(HANDLES) == "True\n"
    with training(environment, tmp_path) as job:
        told = environment.answer("arm", "--status")
        assert told["folder"] == str(environment.site)
        assert [each["pid"] for each in told["running"] if str(tmp_path) in each["command"]] == [job.pid]
        assert environment.answer("arm", "--undo")["armed"] == "no"
        assert sorted(environment.site.rglob("*")) == before
        assert environment.code(HANDLES) == "False\n"
        told = environment.answer("arm", "--status")  # who runs stays armed
        assert [each["pid"] for each in told["running"] if str(tmp_path) in each["command"]] == [job.pid]


def test_another_versions_stub_is_told_and_replaced(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    environment.trimtab("arm")
    (environment.site / MODULE).write_text("# of old\n")
    assert environment.answer("arm", "--status")["armed"] == "of another version of trimtab"
    (environment.site / MODULE).unlink()
    assert environment.answer("arm", "--status")["armed"] == "of another version of trimtab"
    assert environment.answer("arm")["armed"] == "yes"
    assert (environment.site / PTH).read_text() == "import trimtab_armed\n"


def test_undo_where_nothing_is_does_nothing(plain: Environment) -> None:
    before = sorted(plain.site.rglob("*"))
    assert plain.answer("arm", "--undo")["armed"] == "no"
    assert sorted(plain.site.rglob("*")) == before


def test_one_of_both(plain: Environment) -> None:
    done = plain.trimtab("arm", "--undo", "--status", check=False)
    assert (done.returncode, done.stderr) == (2, "error: undo, status: give one of them\n")
