"""Two switches by which a person takes trimtab's hands off a run, without any agent.

`TRIMTAB_DISABLE=1` in the environment, or the existence of the file that `TRIMTAB_KILL_FILE` names.
"""

from __future__ import annotations

import os


def switched_off() -> bool:
    """Whether one of them is set now."""
    if os.environ.get("TRIMTAB_DISABLE", "") not in ("", "0"):
        return True
    kill_file = os.environ.get("TRIMTAB_KILL_FILE")
    return bool(kill_file) and os.path.exists(str(kill_file))
