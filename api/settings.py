"""What an operator decides of a service, a part for each concern."""

from __future__ import annotations

from dataclasses import dataclass, field

from trimtab.api.access.doorman import AccessSettings
from trimtab.api.notify.settings import AlertSettings
from trimtab.api.retention import Keep


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that `trimtab serve` takes besides the database, the address and the logs, which are the process's."""

    access: AccessSettings = field(default_factory=AccessSettings)
    alerts: AlertSettings = field(default_factory=AlertSettings)
    keep: Keep = field(default_factory=Keep)
    trusted_proxies: tuple[str, ...] = ()
    """Addresses whose word is taken, in headers, for where a request comes from and by which scheme."""
