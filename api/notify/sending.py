"""One attempt at one message: from a claim to what it came to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus

from trimtab.api.notify.posting import Answer, Poster
from trimtab.api.notify.schedule import Meaning, Schedule, meaning, retry_after
from trimtab.api.notify.shapes.shape import Shape
from trimtab.api.notify.signing import signed
from trimtab.api.notify.ssrf import RefusedError
from trimtab.api.notify.text import cut
from trimtab.storage.delivery import Claim, Settlement, Status

MAX_ERROR = 300
"""Characters of an answer that are kept, for the administrator to read."""


async def attempted(
    poster: Poster, claim: Claim, shapes: Mapping[str, Shape], schedule: Schedule, now: float
) -> Settlement:
    """Send the message, and judge the answer."""
    shape, endpoint = shapes[claim.endpoint.shape], claim.endpoint
    body = json.loads(claim.delivery.body)
    if shape.keyed is not None:
        body = shape.keyed(body, endpoint.key)
    content = json.dumps(body).encode()
    signature = signed(claim.delivery.message_id, int(now), content, endpoint.secrets(now)) if shape.signed else {}
    try:
        answer = await poster.post(endpoint.url, content, signature)
    except RefusedError as error:
        return settled(claim, schedule, None, f"nothing was sent: {error}", now)
    except TimeoutError:
        return settled(claim, schedule, None, f"no answer within {poster.policy.total_s:g} s", now)
    except OSError as error:
        return settled(claim, schedule, None, f"it cannot be reached: {error}", now)
    return settled(claim, schedule, answer, _told(answer), now)


def settled(claim: Claim, schedule: Schedule, answer: Answer | None, error: str, now: float) -> Settlement:
    """What becomes of the message after an answer, or after none."""
    status = None if answer is None else answer.status
    said = meaning(status)
    if said is Meaning.DELIVERED:
        return Settlement(status=Status.DELIVERED, answer=status, error="")
    error = cut(error, MAX_ERROR)
    if said is Meaning.GONE:
        return Settlement(
            status=Status.DEAD, answer=status, error=error, disable="the receiver says that it is gone (410)"
        )
    wait = None if answer is None else retry_after(answer.headers.get("retry-after"), now)
    rest = None if wait is None else now + wait
    if said is Meaning.NEVER or claim.delivery.attempts >= claim.delivery.tries:
        return Settlement(status=Status.DEAD, answer=status, error=error, not_before=rest)
    later = now + schedule.delay(claim.delivery.attempts, wait)
    return Settlement(status=Status.PENDING, answer=status, error=error, next_at=later, not_before=rest)


def _told(answer: Answer) -> str:
    if 300 <= answer.status < 400:
        return f"{answer.status}: it redirects, which is not followed; give the address that it leads to"
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "unknown status"
    text = " ".join(answer.body.decode("utf-8", "replace").split())
    return f"{answer.status} {phrase}" + (f": {text}" if text else "")
