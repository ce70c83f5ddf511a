"""`python -m trimtab` where only the bare install is there."""

from __future__ import annotations

import subprocess
import sys

WITHOUT_TYPER = "import sys; sys.modules['typer'] = None; from trimtab.__main__ import main; main()"


def test_without_the_agent_extra_it_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_TYPER], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == ("trimtab: typer is not installed; the command line needs: pip install 'trimtab[agent]'\n")


def test_with_it_the_command_line_runs() -> None:
    done = subprocess.run([sys.executable, "-m", "trimtab", "--help"], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
