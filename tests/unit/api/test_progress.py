"""A bar appears only when the work turns out to be long, and lines where there is no bar."""

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from trimtab.api.cli.progress import SLOW_S, Lines, bar


def drawn(seconds: float, *, quiet: bool = False) -> str:
    """What is drawn while ten items, in two stretches, take `seconds` in all."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with bar("folding again", 10, quiet=quiet, console=console, clock=ticking(seconds / 10).__next__) as watch:
        assert [list(watch(range(4))), list(watch("abcdef"))] == [[0, 1, 2, 3], list("abcdef")]
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def ticking(step: float) -> Iterator[float]:
    now = 0.0
    while True:
        yield now
        now += step


def test_in_a_log_the_first_line_the_last_and_one_every_ten_seconds_are_printed() -> None:
    out = io.StringIO()
    seconds = iter([0.0, 4.0, 9.9, 10.0, 12.0, 13.0])
    lines = Lines(Console(file=out), clock=lambda: next(seconds))
    for step in range(6):
        lines.tell(f"step {step}", last=step == 5)
    assert out.getvalue() == "step 0\nstep 3\nstep 5\n"


def test_short_work_draws_nothing() -> None:
    assert drawn(SLOW_S * 0.9) == ""


def test_long_work_draws_a_bar() -> None:
    assert "folding again" in drawn(SLOW_S * 2)


def test_quiet_work_draws_nothing() -> None:
    assert drawn(SLOW_S * 2, quiet=True) == ""


def test_an_error_in_the_work_takes_the_bar_down() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with bar("work", 2, console=console, clock=ticking(9.0).__next__) as watch, pytest.raises(ValueError, match="soon"):
        list(map(int, watch(["1", "2", "soon"])))
    with bar("more", 2, console=console, clock=ticking(9.0).__next__) as watch:
        list(watch("ab"))
    assert "more" in console.file.getvalue()  # type: ignore[attr-defined]
