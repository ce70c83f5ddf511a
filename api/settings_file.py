"""Settings of the agent in a TOML file, such as

window = 8

[detectors.mismatch]
std_limit = 0.3

and on a command line, such as `detectors.mismatch.std_limit=0.3`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trimtab.api.errors import UserError


class SettingsFileError(UserError):
    """A file that cannot be read, or is no TOML, or words that name no setting; the message tells which."""


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


def settings_of(words: Iterable[str]) -> dict[str, Any]:
    """What `NAME=VALUE` words say, by dotted name; a value that is no JSON is text.

    Raises:
        SettingsFileError: a word has no name or no value.
    """
    return dict(map(_setting, words))


def _setting(word: str) -> tuple[str, Any]:
    name, separator, value = word.partition("=")
    if not separator or not name:
        raise SettingsFileError(f"--set: {word!r} is not NAME=VALUE, such as detectors.mismatch.std_limit=0.3")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
