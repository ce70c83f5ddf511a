"""Where webhooks are made and changed: by the rules of their shapes, and with addresses that may be sent to."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trimtab.api.notify.posting import Poster
from trimtab.api.notify.shapes import SHAPES
from trimtab.api.notify.shapes.shape import Shape
from trimtab.api.notify.signing import new_secret
from trimtab.api.notify.ssrf import RefusedError
from trimtab.storage.endpoints import Endpoint, Endpoints, Timing
from trimtab.storage.values import Origin

TIMES = ("group_wait", "group_interval", "repeat_interval")


class WebhookRuleError(ValueError):
    """Something that a webhook of this shape cannot be; the message begins with the field."""


class Desk:
    """Makes and changes endpoints. Asynchronous where an address is looked at."""

    def __init__(self, endpoints: Endpoints, poster: Poster, clock: Callable[[], float]) -> None:
        self.endpoints, self.clock = endpoints, clock
        self._poster = poster

    async def checked(self, shape: str, wanted: Mapping[str, Any], *, fresh: bool) -> None:
        """Look at what is wanted of a webhook, which is `fresh` where there is nothing yet that it changes.

        Raises:
            WebhookRuleError: an address that nothing is sent to; a key that is missing, or that the shape has none of;
                or kinds that it cannot be told of.
        """
        rules = SHAPES[shape]
        url = wanted.get("url")
        if fresh and not (url or rules.url):
            raise WebhookRuleError("url: missing; give the address that messages are sent to")
        if rules.keyed is None and wanted.get("key") is not None:
            raise WebhookRuleError(f"key: the shape {shape} has none; leave it out")
        if fresh and rules.keyed is not None and wanted.get("key") is None:
            raise WebhookRuleError("key: missing; give the integration's routing key")
        unknown = [kind.value for kind in wanted.get("kinds") or () if kind not in rules.kinds]
        if unknown:
            possible = ", ".join(kind.value for kind in rules.kinds)
            raise WebhookRuleError(f"kinds: {', '.join(unknown)} cannot be told in the shape {shape}; {possible} can")
        if url is not None:
            try:
                await self._poster.check(url)
            except RefusedError as error:
                raise WebhookRuleError(f"url: {error}") from error

    def add(self, shape: str, wanted: Mapping[str, Any], *, origin: Origin, reason: str) -> Endpoint:
        """Make what was checked. Raises `WebhookRuleError` for times that do not go together, `EndpointConflictError`.

        `wanted` holds fields of `Endpoint` and of its timing; those that are missing are the shape's.
        """
        rules = SHAPES[shape]
        fields = {name: value for name, value in wanted.items() if name not in TIMES}
        endpoint = Endpoint(
            **{"severity": rules.severity, "kinds": rules.kinds, "url": rules.url} | fields,
            id=f"wh_{secrets.token_hex(8)}",
            shape=shape,
            timing=_timed(rules.timing, wanted),
            secret=new_secret(),
            created_at=self.clock(),
        )
        self.endpoints.add(endpoint, origin=origin, reason=reason)
        return endpoint

    def change(self, endpoint: str, wanted: Mapping[str, Any], *, origin: Origin, reason: str) -> Endpoint:
        """Change what was checked. Raises as `add`, and `UnknownEndpointError`."""
        fields = {name: value for name, value in wanted.items() if name not in TIMES}

        def changes(present: Endpoint) -> dict[str, Any]:
            return fields if fields.keys() == wanted.keys() else fields | {"timing": _timed(present.timing, wanted)}

        return self.endpoints.change(endpoint, changes, now=self.clock(), origin=origin, reason=reason)

    def rotate(self, endpoint: str, *, overlap: float, origin: Origin, reason: str) -> Endpoint:
        """Give it a new secret; for `overlap` seconds the one that it has signs too, and one before it no more.

        Raises `UnknownEndpointError`.
        """
        now, secret = self.clock(), new_secret()

        def changes(present: Endpoint) -> dict[str, Any]:
            return {"secret": secret, "previous_secret": present.secret, "previous_until": now + overlap}

        return self.endpoints.change(endpoint, changes, now=now, origin=origin, reason=reason)


def signs(endpoint: Endpoint) -> bool:
    """Whether its receiver can check who sent a message."""
    rules: Shape = SHAPES[endpoint.shape]
    return rules.signed


def _timed(timing: Timing, wanted: Mapping[str, Any]) -> Timing:
    timing = replace(timing, **{name: wanted[name] for name in TIMES if name in wanted})
    repeat = timing.repeat_interval
    if repeat is not None and repeat < timing.group_interval:
        raise WebhookRuleError(
            f"repeat_interval: {repeat:g} s is less than group_interval ({timing.group_interval:g} s), within which "
            "nothing is told; give at least as much"
        )
    return timing
