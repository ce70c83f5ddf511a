"""Every token and session, in memory, as they stood seconds ago: so that no request waits for the database.

They are read again behind the scenes once they are `FRESH_S` old, and none is trusted that is older than `STALE_S`:
whatever another process or the command line changes holds after that time at the latest, and what this process changes
at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.exc import DBAPIError

from trimtab.storage.tokens import StoredSession, StoredToken, Tokens

FRESH_S = 1.5
STALE_S = 5.0
COARSE_S = 300.0
"""How far behind the time of last use may be, so that it costs a write now and then and not one a request."""

_log = logging.getLogger("trimtab.api")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What there was at one moment."""

    tokens: dict[str, StoredToken]
    """By id, those that are spent included."""
    sessions: dict[str, StoredSession]
    """By the digest of the cookie's secret."""
    as_of: float
    """Monotonic time at which they began to be read."""
    changes: int
    """Changes that are in there for sure."""


class Keyring:
    """The tokens and sessions of a database. To be used from the event loop; `forget` from anywhere."""

    def __init__(
        self,
        tokens: Tokens,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = tokens
        self._clock, self._monotonic = clock, monotonic
        self._keys: Keys | None = None
        self._changes = 0
        self._reading: asyncio.Task[Keys] | None = None
        self._used: dict[str, float] = {}

    async def keys(self) -> Keys:
        """What there was within the last `STALE_S`. Raises `DBAPIError` where the database has been away for longer."""
        keys = self._keys
        age = STALE_S if keys is None else self._monotonic() - keys.as_of
        if keys is None or age >= STALE_S or keys.changes < self._changes:
            return await self._read_with(self._changes)
        if age >= FRESH_S and self._reading is None:
            self._start().add_done_callback(_ignored)
        return keys

    async def newest(self) -> Keys:
        """What there is now, for a secret that is not known. Raises `DBAPIError`."""
        self.forget()
        return await self._read_with(self._changes)

    def forget(self) -> None:
        """Something was changed: the next request looks at the database first."""
        self._changes += 1

    def used(self, token: StoredToken, now: float) -> None:
        """Note that a token was used; it is written with the next reading."""
        if token.last_used_at is None or now - token.last_used_at >= COARSE_S:
            self._used[token.id] = now

    async def _read_with(self, changes: int) -> Keys:
        """What there was after so many changes. However many wait for it, the database is asked once at a time."""
        while True:
            keys = await asyncio.shield(self._reading or self._start())
            if keys.changes >= changes:
                return keys

    def _start(self) -> asyncio.Task[Keys]:
        self._reading = asyncio.get_running_loop().create_task(self._read())
        return self._reading

    async def _read(self) -> Keys:
        used, self._used = self._used, {}
        try:
            self._keys = await asyncio.to_thread(self._look, self._changes, self._monotonic(), used)
            return self._keys
        finally:
            self._reading = None

    def _look(self, changes: int, began: float, used: dict[str, float]) -> Keys:
        if used:
            try:
                self._tokens.used(used)
            except DBAPIError as error:
                _log.warning("when tokens were used last could not be written: %s", error.orig)
        return Keys(
            tokens={token.id: token for token in self._tokens.all()},
            sessions={session.digest: session for session in self._tokens.sessions(self._clock())},
            as_of=began,
            changes=changes,
        )


def _ignored(reading: asyncio.Task[Keys]) -> None:
    """A reading that nobody waits for may fail: the next request that cannot do without it is told."""
    with contextlib.suppress(asyncio.CancelledError):
        reading.exception()
