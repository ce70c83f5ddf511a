"""What is logged, as it is written to a stream."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from trimtab.api.access.limits import Rate
from trimtab.api.logs import REQUEST_ID, JsonLines, LogFormat, TextLines, Thinned, handler

SECRET = "ttb_Ab12Cd34_S3cretS3cretS3cretS3cretS3cretS3cretS3cret0"


@contextmanager
def logging_to(stream: io.StringIO, form: LogFormat) -> Iterator[logging.Logger]:
    logger = logging.getLogger("test.logs")
    logger.propagate = False
    writing = handler(stream, form)
    logger.addHandler(writing)
    logger.setLevel(logging.INFO)
    yield logger
    logger.removeHandler(writing)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_record_is_one_line_of_json_with_its_fields() -> None:
    stream = io.StringIO()
    with logging_to(stream, LogFormat.JSON) as logger:
        logger.warning("lost %d of\n%s", 3, "job \ud800", extra={"job": "run", "status": 503, "route": None})
    (told,) = lines(stream)
    assert told.pop("time").endswith("Z")
    assert told == {
        "level": "warning",
        "logger": "test.logs",
        "message": "lost 3 of\njob \ud800",
        "job": "run",
        "status": 503,
    }


def test_an_exception_is_in_its_line() -> None:
    stream = io.StringIO()
    with logging_to(stream, LogFormat.JSON) as logger:
        try:
            raise ValueError(f"with {SECRET}")
        except ValueError:
            logger.exception("failed")
    (told,) = lines(stream)
    assert told["exception"].startswith("Traceback (most recent call last):\n")
    assert told["exception"].endswith("ValueError: with ttb_Ab12Cd34_***")


def test_text_is_one_line_whatever_a_client_sends() -> None:
    record = logging.makeLogRecord(
        {"name": "n", "levelno": 20, "levelname": "INFO", "msg": "GET %s", "args": ("/a\nERROR forged\x1b[2J",)}
    )
    record.created, record.status = 1e9 + 0.25, 404
    assert TextLines().format(record) == r"2001-09-09T01:46:40.250Z INFO    n: GET /a\x0aERROR forged\x1b[2J status=404"


def test_the_traceback_of_a_text_record_follows_it() -> None:
    record = logging.makeLogRecord({"name": "n", "levelname": "ERROR", "msg": "failed"})
    try:
        raise KeyError("x")
    except KeyError:
        record.exc_info = sys.exc_info()
    first, second, *_, last = TextLines().format(record).splitlines()
    assert first.endswith("ERROR   n: failed")
    assert (second, last) == ("Traceback (most recent call last):", "KeyError: 'x'")


@pytest.mark.parametrize("form", LogFormat)
def test_no_secret_is_written(form: LogFormat) -> None:
    stream = io.StringIO()
    with logging_to(stream, form) as logger:
        logger.info("token %s", SECRET, extra={"shown": f"Bearer {SECRET}"})
    assert "S3cret" not in stream.getvalue()
    assert stream.getvalue().count("ttb_Ab12Cd34_***") == 2


def test_records_carry_the_request_during_which_they_are_logged() -> None:
    stream = io.StringIO()
    with logging_to(stream, LogFormat.JSON) as logger:
        reset = REQUEST_ID.set("abc")
        logger.info("during")
        REQUEST_ID.reset(reset)
        logger.info("after")
    assert [one.get("request_id") for one in lines(stream)] == ["abc", None]


def test_what_is_alike_is_thinned_out_and_counted() -> None:
    now, stream = 0.0, io.StringIO()
    writing = logging.StreamHandler(stream)
    writing.setFormatter(JsonLines())
    writing.addFilter(Thinned(Rate(per_second=0.1, burst=2), clock=lambda: now))

    def log(message: str, *values: object, status: int = 503) -> None:
        fields = {"name": "n", "levelname": "INFO", "levelno": 20, "msg": message, "args": values, "status": status}
        writing.handle(logging.makeLogRecord(fields))

    for number in range(5):
        log("refused %d", number)
    log("refused %d", 5, status=429)
    log("something else")
    now = 10.0
    log("refused %d", 6)
    log("refused %d", 7)
    assert [(one["message"], one.get("suppressed")) for one in lines(stream)] == [
        ("refused 0", None),
        ("refused 1", None),
        ("refused 5", None),
        ("something else", None),
        ("refused 6", 3),
    ]
