"""What the service logs, on its standard error: a line a record, for machines or for people, and never a secret.

Only a program that owns its process, such as `trimtab serve`, may call `log_to`; everything else just logs.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import TextIO

from trimtab.api.access.limits import Limiter, Rate
from trimtab.api.access.redaction import redact_logs

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Id of the request that is being answered; every record that is logged meanwhile carries it."""
ALIKE = Rate(per_second=1, burst=20)
"""Records of one kind that are written: a database that is away must not fill the disk with the news of it."""
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_ESCAPED = {number: f"\\x{number:02x}" for number in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}


class LogFormat(StrEnum):
    """How a record is written."""

    JSON = "json"
    """An object: `time`, `level`, `logger`, `message`, and the record's own fields."""
    TEXT = "text"


class LogLevel(StrEnum):
    """The least that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def log_to(stream: TextIO, form: LogFormat, level: LogLevel) -> None:
    """Write whatever this process logs, warnings included, to a stream."""
    logging.basicConfig(level=level.upper(), handlers=[handler(stream, form)], force=True)
    logging.captureWarnings(True)
    if level is not LogLevel.DEBUG:
        for chatty in ("alembic", "httpx", "httpcore"):
            logging.getLogger(chatty).setLevel(logging.WARNING)


def handler(stream: TextIO, form: LogFormat) -> logging.Handler:
    """What writes records to a stream."""
    made = logging.StreamHandler(stream)
    made.setFormatter(JsonLines() if form is LogFormat.JSON else TextLines())
    made.addFilter(_of_request)
    made.addFilter(Thinned())  # before redacting, which leaves nothing of a record's template
    redact_logs([made])
    return made


def _of_request(record: logging.LogRecord) -> bool:
    if "request_id" not in vars(record) and (request := REQUEST_ID.get()) is not None:
        record.request_id = request
    return True


class Thinned(logging.Filter):
    """Of records that are alike, those of a template, route and status, lets so many pass, and counts the others in the
    field `suppressed` of the next that passes."""

    def __init__(self, rate: Rate = ALIKE, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._limiter = Limiter(rate, clock)
        self._suppressed: dict[str, int] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record passes."""
        fields = vars(record)
        key = f"{record.name} {record.msg} {fields.get('route')} {fields.get('status')}"
        with self._lock:
            if self._limiter.take(key):
                self._suppressed[key] = self._suppressed.get(key, 0) + 1
                return False
            if suppressed := self._suppressed.pop(key, 0):
                record.suppressed = suppressed
        return True


class JsonLines(logging.Formatter):
    """A record as one line of JSON, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        told = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if exception := _exception(self, record):
            told["exception"] = exception
        return json.dumps(told, default=str)


class TextLines(logging.Formatter):
    """A record as a line of text, with its traceback on the lines below it."""

    def format(self, record: logging.LogRecord) -> str:
        """The lines, without the end of the last; whatever a client sent begins no line."""
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname:<7} {record.name}: {record.getMessage()}{fields}"
        exception = _exception(self, record)
        return line.translate(_ESCAPED) + (f"\n{exception}" if exception else "")


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """What the record was given beside its message, where it is there."""
    return {name: value for name, value in vars(record).items() if name not in _OWN and value is not None}


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return record.exc_text or (formatter.formatException(record.exc_info) if record.exc_info else "")
