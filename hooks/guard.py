"""What stands between an error in here and the training loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_log = logging.getLogger("trimtab")


class Guard:
    """Swallows errors: each is counted, and the first of a kind is logged.

    >>> guard = Guard("run")
    >>> with guard.swallowing("close"):
    ...     raise OSError("no space left")
    >>> guard.failures
    1
    """

    def __init__(self, job: str) -> None:
        self.failures = 0
        """Errors swallowed so far."""
        self._job = job
        self._broke = False
        self._said: set[str] = set()

    @contextmanager
    def swallowing(self, doing: str, *, breaks: bool = False) -> Iterator[None]:
        """Swallow all but a wish to stop; `breaks` marks the step as one in which reporting itself failed."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._broke |= breaks
            self.swallow(doing, error)

    def taken(self, name: str, value: Any, kind: Callable[[Any], T]) -> T | None:
        """`value` as `kind` makes it; where it cannot, None, as if it had not been observed."""
        taken = None
        if value is not None:
            with self.swallowing(name):
                taken = kind(value)
        return taken

    def swallow(self, doing: str, error: BaseException) -> None:
        """Count and log an error that was caught."""
        self.failures += 1
        self.say(
            f"{doing}: {type(error).__name__}: {error} (training goes on; more of this kind will only be counted)",
            kind=f"{doing} {type(error).__name__}",
        )

    def take_broke(self) -> bool:
        """Whether something marked the step since this was last asked."""
        broke, self._broke = self._broke, False
        return broke

    def say(self, message: str, *, kind: str | None = None) -> None:
        """Log a message, once a kind."""
        if (kind or message) not in self._said:
            self._said.add(kind or message)
            _log.warning("%s (job %s): %s", "trimtab", self._job, message)
