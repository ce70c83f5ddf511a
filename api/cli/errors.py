"""What is the user's to mend, and is therefore told in one line."""

from __future__ import annotations

from trimtab.agent.checks import ConfigError
from trimtab.api.errors import UserError
from trimtab.storage.engine import StorageError
from trimtab.storage.ledger_file import LedgerFileError
from trimtab.storage.queries import UnknownJobError


class UsageError(UserError):
    """Arguments that do not go together; the message says which and what to give."""


USER_ERRORS = (UserError, StorageError, LedgerFileError, UnknownJobError, ConfigError)
"""The base of what this layer raises, and by name what the layers below it do."""
