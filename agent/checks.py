"""One way to refuse a setting: an error that names the field, the value and what is allowed."""

from __future__ import annotations

MOST = 1_000_000
"""No setting, whatever its unit, has a use above it; it keeps every sum and ratio of the brain within float64."""


class ConfigError(ValueError):
    """A setting that does not exist, or a value that it cannot take. Names the field, the value and what is allowed."""


def require(ok: bool, field: str, value: object, need: str) -> None:
    """Raise `ConfigError` saying that `field` must be `need`, unless `ok`. Write conditions so that NaN fails them."""
    if not ok:
        raise ConfigError(f"{field}: {value!r} must be {need}")
