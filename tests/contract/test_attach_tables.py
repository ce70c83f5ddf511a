"""The tables of controls in `docs/attach/` say what the adapters do."""

import re
from pathlib import Path

import pytest

from trimtab.hooks.controls import Liveness
from trimtab.hooks.trl import CONTROL_TABLE as TRL

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\|?\s*((?:`\w+`(?:, )?)+)\s*\|\s*(LIVE|NEXT_ROLLOUT|RESTART|ABSENT)\b", re.MULTILINE)
TABLES = {"trl": TRL}


@pytest.mark.parametrize("framework", TABLES)
def test_the_page_has_the_adapters_table(framework: str) -> None:
    said = {}
    for names, when in ROW.findall((ROOT / "docs" / "attach" / f"{framework}.md").read_text()):
        for name in re.findall(r"`(\w+)`", names):
            assert name not in said, name
            said[name] = Liveness[when]
    assert said == TABLES[framework]
