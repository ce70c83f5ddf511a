"""No secret is left in what is logged or answered."""

import io
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.api.access import tokens
from trimtab.api.access.redaction import Redacting, redact_logs, redacted
from trimtab.api.problem import Problem

SECRET = "S3cretS3cretS3cretS3cretS3cretS3cretS3cret0"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"ttb_Ab12Cd34_{SECRET} is not valid", "ttb_Ab12Cd34_*** is not valid"),
        (f"ttb_Ab12Cd34_{SECRET[:9]}", "ttb_Ab12Cd34_***"),
        (f"Authorization: Bearer ttb_Ab12Cd34_{SECRET}", "Authorization: Bearer ttb_Ab12Cd34_***"),
        (f"{{'authorization': 'Bearer {SECRET}'}}", "{'authorization': 'Bearer ***'}"),
        (f"Authorization: Basic {SECRET}", "Authorization: Basic ***"),
        (f"authorization={SECRET}", "authorization=***"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw== signs", "whsec_*** signs"),
        (
            f'{{"routing_key": "{SECRET[:32]}", "event_action": "trigger"}}',
            '{"routing_key": "***", "event_action": "trigger"}',
        ),
        (f"cookie: trimtab_session={SECRET}; theme=dark", "cookie: trimtab_session=***; theme=dark"),
        (f"x-csrf-token: {SECRET}", "x-csrf-token: ***"),
        ("postgresql+psycopg://trimtab:hunter2@db/trimtab", "postgresql+psycopg://***@db/trimtab"),
        ("https://hooks.slack.com/services/T0/B0/abc said 404", "https://hooks.slack.com/services/*** said 404"),
        ("https://discord.com/api/webhooks/123/a-B_c?wait=true", "https://discord.com/api/webhooks/123/***?wait=true"),
        ("https://discord.com/api/v10/webhooks/123/a-B_c", "https://discord.com/api/v10/webhooks/123/***"),
        ("https://example.com/hook?token=abc&x=1", "https://example.com/hook?token=***&x=1"),
        ("https://example.com/hook?x=1&api_key=abc", "https://example.com/hook?x=1&api_key=***"),
    ],
)
def test_the_secret_goes_and_the_rest_stays(text: str, left: str) -> None:
    assert redacted(text) == left
    assert redacted(left) == left


@pytest.mark.parametrize(
    "text",
    [
        "",
        "the token ttb_Ab12Cd34 was revoked",
        "a bearer token is needed",
        "needs the scope control, and the token 'ada' has read",
        "http://127.0.0.1:8787/v1/jobs?limit=5&cursor=abc",
        "authorization: missing"[:14],
        "clip_low = 0.2, entropy 0.61 nats",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redacted(text) == text


@given(st.text(), st.text())
def test_no_surroundings_hide_a_token(before: str, after: str) -> None:
    token = tokens.minted()
    assert token.secret not in redacted(f"{before} {token.text} {after}")


def test_logs_hold_no_secrets_in_message_arguments_traceback_or_extra_fields() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s %(where)s"))
    redact_logs([handler])
    logger = logging.getLogger("test.redaction.below")
    logging.getLogger("test.redaction").addHandler(handler)
    token = f"ttb_Ab12Cd34_{SECRET}"
    try:
        raise ValueError(f"cannot use {token}")
    except ValueError:
        logger.exception("refused %s for %d times", token, 3, extra={"where": f"from whsec_{SECRET}"})
    written = stream.getvalue()
    assert written.startswith("ERROR refused ttb_Ab12Cd34_*** for 3 times from whsec_***\nTraceback")
    assert "ValueError: cannot use ttb_Ab12Cd34_***" in written
    assert SECRET not in written


def test_a_record_without_secrets_passes_as_it_is() -> None:
    record = logging.makeLogRecord({"msg": "%s of %s", "args": ("one", "two"), "level": logging.INFO})
    assert Redacting().filter(record)
    assert record.getMessage() == "one of two"


def test_refusals_quote_no_secrets() -> None:
    token = f"ttb_Ab12Cd34_{SECRET}"
    problem = Problem(field=token, value=token, message=f"is {token}")
    assert SECRET not in problem.model_dump_json()
