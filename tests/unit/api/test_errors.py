"""What the command line tells in one line."""

import pytest

from trimtab.agent.checks import ConfigError
from trimtab.api.cli.errors import USER_ERRORS, UsageError
from trimtab.api.client import ClientError
from trimtab.api.demo.perform import DemoError
from trimtab.api.restore import UnreadableJobError
from trimtab.api.server import BindError
from trimtab.storage.engine import StorageError
from trimtab.storage.ledger_file import LedgerFileError
from trimtab.storage.queries import UnknownJobError


@pytest.mark.parametrize(
    "error",
    [
        UsageError,
        ClientError,
        BindError,
        DemoError,
        UnreadableJobError,
        StorageError,
        LedgerFileError,
        UnknownJobError,
        ConfigError,
    ],
)
def test_what_the_user_mends_is_a_user_error(error: type[Exception]) -> None:
    assert issubclass(error, USER_ERRORS)
