"""How far a log has been read, in one file that is whole at every moment.

It holds the place in the log, what has been read of the step that is not complete, and the summaries that are not known
to be with the agent. All of it changes in one rename, so whatever moment the reader is killed at, the next one goes on
from a state that was: it sends the same summaries again, byte for byte, and the agent knows them.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from trimtab.api.tail.assembly import Assembly, LoggedStep
from trimtab.api.tail.source import TailError
from trimtab.api.tail.vanishing import Presence

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What was left out so far."""

    damaged: int = 0
    not_numbers: int = 0
    impossible: int = 0
    too_many: int = 0
    cut_off: int = 0
    """Files that were cut or are gone, of which a rest may be lost."""
    refused: int = 0
    """Summaries that the agent will never take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The state of one reader."""

    job: str
    source: str
    path: str
    assembly: Assembly
    framework: str = ""
    """Empty until the keys have told."""
    place: dict[str, Any] = field(default_factory=dict)
    presence: Presence = field(default_factory=Presence)
    outbox: tuple[str, ...] = ()
    """Summaries as JSON, oldest first."""
    steps: int = 0
    """Complete so far."""
    counts: Counts = field(default_factory=Counts)

    def encoded(self) -> bytes:
        """As JSON; NaN and the infinities are tokens there."""
        return json.dumps({"version": VERSION, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """The cursor in `data`. Raises ValueError where there is none."""
        try:
            found = json.loads(data)
            if found.pop("version") != VERSION:
                raise ValueError("it is of another version")
            assembly = dict(found.pop("assembly"))
            opened = assembly.pop("open")
            return cls(
                assembly=Assembly(open=None if opened is None else LoggedStep(**opened), **assembly),
                presence=_presence(found.pop("presence")),
                outbox=tuple(found.pop("outbox")),
                counts=Counts(**found.pop("counts")),
                **found,
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error


def _presence(found: dict[str, Any]) -> Presence:
    return Presence(attempt=found["attempt"], runs=found["runs"], gone=tuple(found["gone"]))


class CursorFile:
    """A cursor on disk, for one process at a time."""

    def __init__(self, path: Path) -> None:
        """Take the file.

        Raises:
            TailError: the folder cannot be written to, or another process has the file.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise TailError(f"--cursor: {path} cannot be written: {error.strerror}; give another place") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise TailError(f"--cursor: another tail has {path}; end that, or give another place") from error

    def load(self) -> Cursor | None:
        """What is stored; None where there is nothing yet.

        Raises:
            TailError: what is stored cannot be read.
        """
        try:
            return Cursor.decoded(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise TailError(
                f"--cursor: {self.path} is no cursor ({error}); remove it to begin anew, as a new attempt"
            ) from error

    def store(self, cursor: Cursor) -> None:
        """Put it in the place of what is stored: after a crash one of the two is there, whole.

        Raises:
            TailError: the disk does not take it.
        """
        scratch = self.path.with_name(f"{self.path.name}.new")
        try:
            with scratch.open("wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(cursor.encoded())
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise TailError(f"--cursor: {self.path} cannot be written: {error.strerror}; make room for it") from error

    def close(self) -> None:
        """Let another process have it."""
        with suppress(OSError):
            os.close(self._lock)
