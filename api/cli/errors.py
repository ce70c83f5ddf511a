"""What is the user's to mend, and is therefore told in one line."""

from __future__ import annotations

from trimtab.agent.checks import ConfigError
from trimtab.api.client import ClientError
from trimtab.api.server import BindError
from trimtab.storage.engine import StorageError
from trimtab.storage.ledger_file import LedgerFileError
from trimtab.storage.queries import UnknownJobError


class UsageError(ValueError):
    """Arguments that do not go together; the message says which and what to give."""


USER_ERRORS = (UsageError, ClientError, BindError, StorageError, LedgerFileError, UnknownJobError, ConfigError)
