"""What the service is started with, as far as telling people goes."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from trimtab.api.errors import UserError
from trimtab.api.notify.ssrf import Network, Policy


class AlertSettingsError(UserError):
    """A setting that cannot be; the message begins with its option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """Where messages may go, and what they link to."""

    policy: Policy = field(default_factory=Policy)
    public_url: str = ""
    """Where people reach the dashboard; empty for messages without links."""

    def link(self, job: str) -> str:
        """Where a job is looked at; empty where that is not known."""
        return f"{self.public_url}/?job={quote(job, safe='')}" if self.public_url else ""


def alert_settings(
    *, http: bool = False, private: Sequence[str] = (), proxy: str = "", public_url: str = ""
) -> AlertSettings:
    """Settings from what a person gave.

    Raises:
        AlertSettingsError: a network, or an address, that is none.
    """
    for option, url in (("webhook-proxy", proxy), ("public-url", public_url)):
        if url and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
            raise AlertSettingsError(f"{option}: {url!r} is no address; give one such as https://trimtab.example.com")
    policy = Policy(http=http, private=tuple(map(_network, private)), proxy=proxy)
    return AlertSettings(policy=policy, public_url=public_url.rstrip("/"))


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise AlertSettingsError(
            f"allow-private-webhooks: {error}; give a network such as 10.20.0.0/16, or an address"
        ) from error
