"""Secrets taken out of whatever is logged or answered.

Nobody should log a secret in the first place; this is for those that come in by the back door: in an exception's text,
in a URL, in the value that a refusal quotes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

HIDDEN = "***"
_NAMES = "authorization|proxy-authorization|x-csrf-token|trimtab_session|routing_key|integration_key|password"
_PARAMETERS = "token|access_token|key|api_key|secret|sig|signature|password|auth"
RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\bttb_([0-9A-Za-z]{8})_[0-9A-Za-z]+", rf"ttb_\1_{HIDDEN}"),
        (r"\bwhsec_[0-9A-Za-z+/=_-]+", f"whsec_{HIDDEN}"),
        (r"(?i)\b(bearer|basic)\s+(?!ttb_)[0-9A-Za-z._~+/=-]{8,}", rf"\1 {HIDDEN}"),
        (rf"""(?i)\b({_NAMES})(["']?\s*[:=]\s*["']?)(?!bearer\b|basic\b)[^\s"',;&}}]+""", rf"\1\2{HIDDEN}"),
        (r"(://)[^/\s:@]*:[^/\s@]+@", rf"\1{HIDDEN}@"),
        (r"\b(hooks\.slack\.com/\w+)/[^\s\"'<>]+", rf"\1/{HIDDEN}"),
        (r"\b(discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d+)/[\w-]+", rf"\1/{HIDDEN}"),
        (rf"(?i)([?&](?:{_PARAMETERS})=)[^&\s\"'<>]+", rf"\1{HIDDEN}"),
    )
]
"""Tokens keep their id, URLs their host; the secret goes."""
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def redacted(text: str) -> str:
    """The text without its secrets; doing it again changes nothing."""
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    return text


class Redacting(logging.Filter):
    """Lets every record pass, without secrets in its message, its traceback and its extra fields. For handlers: a
    logger's filters see nothing of the loggers below it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Take the secrets out of the record."""
        record.msg, record.args = redacted(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = redacted(record.exc_text)
        for name, value in vars(record).items():
            if name not in _OWN and isinstance(value, str):
                setattr(record, name, redacted(value))
        return True


def redact_logs(handlers: Iterable[logging.Handler]) -> None:
    """Have these handlers write no secrets."""
    for handler in handlers:
        if not any(isinstance(one, Redacting) for one in handler.filters):
            handler.addFilter(Redacting())
