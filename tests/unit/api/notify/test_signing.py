import base64
import json
import time

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from trimtab.api.notify.signing import new_id, new_secret, signed

BODY = json.dumps({"type": "alerts.firing", "text": "ε < 1"}).encode()


def test_the_reference_library_takes_a_signature_of_ours() -> None:
    secret = new_secret()
    headers = signed("msg_1", int(time.time()), BODY, [secret])
    assert Webhook(secret).verify(BODY, headers) == json.loads(BODY)


def test_while_a_secret_is_replaced_either_is_taken_and_no_other() -> None:
    new, old, other = new_secret(), new_secret(), new_secret()
    headers = signed("msg_1", int(time.time()), BODY, [new, old])
    assert len(headers["webhook-signature"].split(" ")) == 2
    for secret in (new, old):
        Webhook(secret).verify(BODY, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(other).verify(BODY, headers)


@pytest.mark.parametrize("field", ["webhook-id", "webhook-timestamp", "body"])
def test_what_was_tampered_with_is_not_taken(field: str) -> None:
    secret, now = new_secret(), int(time.time())
    headers, body = signed("msg_1", now, BODY, [secret]), BODY
    if field == "body":
        body = BODY.replace(b"1", b"2")
    else:
        headers |= {field: {"webhook-id": "msg_2", "webhook-timestamp": str(now + 1)}[field]}
    with pytest.raises(WebhookVerificationError, match="signature"):
        Webhook(secret).verify(body, headers)


def test_an_old_request_is_not_taken() -> None:
    secret = new_secret()
    with pytest.raises(WebhookVerificationError, match="too old"):
        Webhook(secret).verify(BODY, signed("msg_1", int(time.time()) - 301, BODY, [secret]))


def test_the_example_of_the_specification_gives_its_signature() -> None:
    headers = signed(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_secrets_and_ids_are_fresh_and_of_the_specified_form() -> None:
    secrets, ids = {new_secret() for _ in range(100)}, {new_id() for _ in range(100)}
    assert len(secrets) == len(ids) == 100
    assert all(24 <= len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) <= 64 for secret in secrets)
    assert all(one.startswith("msg_") and len(one) <= 32 and "." not in one for one in ids)


def test_a_secret_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="secret: not whsec_ and base64"):
        signed("msg_1", 1, BODY, ["whsec_!"])
