"""What `docs/alerts.md` says of shapes, kinds and the schedule is so."""

import re
from pathlib import Path

from trimtab.api.notify.schedule import DELAYS_S
from trimtab.api.notify.shapes import SHAPES
from trimtab.storage.alert import AlertKind

TEXT = (Path(__file__).resolve().parents[2] / "docs/alerts.md").read_text()
WORDS = {"incidents": AlertKind.INCIDENT, "proposals": AlertKind.PROPOSAL, "lock-outs": AlertKind.LOCKOUT}
WORDS |= {"changes": AlertKind.CHANGE}


def table(header: str) -> list[list[str]]:
    """The cells of the table whose first row starts with `header`, without that row."""
    found = TEXT.partition(f"\n{header}")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in found.splitlines()[2:]]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_shape_has_a_row_with_its_defaults() -> None:
    rows = {quoted(row[0])[0]: row[1:] for row in table("| shape |")}
    assert list(rows) == list(SHAPES)
    for name, (least, wait, interval, repeat, kinds) in rows.items():
        shape, repeats = SHAPES[name], SHAPES[name].timing.repeat_interval
        assert quoted(least) == [shape.severity]
        assert (wait, interval) == (f"{shape.timing.group_wait:g} s", f"{shape.timing.group_interval:g} s")
        assert repeat == ("never" if repeats is None else f"{repeats:.0f} s")
        assert tuple(WORDS[word] for word in kinds.split(", ")) == shape.kinds


def test_every_kind_has_a_row() -> None:
    assert [quoted(row[0])[0] for row in table("| kind |")] == list(AlertKind)


def test_the_schedule_is_written_down() -> None:
    assert DELAYS_S == (0, 5, 30, 2 * 60, 10 * 60, 30 * 60, 2 * 3600)
    assert "at once, then after 5 s, 30 s, 2 min, 10 min, 30 min and 2 h" in TEXT
