"""The tables, a file for each concern."""

from trimtab.storage.tables import access, alerts, history
from trimtab.storage.tables.base import Base
from trimtab.storage.tables.ledger import (
    EventRow,
    JobRow,
    LedgerRow,
    ObservationRow,
    QuarantineRow,
    RunStateRow,
    SignalSetRow,
)

__all__ = [
    "Base",
    "EventRow",
    "JobRow",
    "LedgerRow",
    "ObservationRow",
    "QuarantineRow",
    "RunStateRow",
    "SignalSetRow",
    "access",
    "alerts",
    "history",
]
