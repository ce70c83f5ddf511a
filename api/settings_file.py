"""Settings of the agent in a TOML file, such as

window = 8

[detectors.mismatch]
std_limit = 0.3
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from trimtab.api.errors import UserError


class SettingsFileError(UserError):
    """A file that cannot be read, or is no TOML; the message names it."""


def settings_in(path: Path | None) -> dict[str, Any]:
    """What `trimtab.agent.config.with_settings` takes; nothing where there is no file.

    Raises:
        SettingsFileError: the file cannot be read, or is no TOML.
    """
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsFileError(f"--config: {path}: {error}") from error
