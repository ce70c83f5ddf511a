"""The tables, a file for each concern."""

from trimtab.storage.tables import access, alerts
from trimtab.storage.tables.base import Base
from trimtab.storage.tables.history import HistoryRow, SignalRollupRow, StretchRow
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
    "HistoryRow",
    "JobRow",
    "LedgerRow",
    "ObservationRow",
    "QuarantineRow",
    "RunStateRow",
    "SignalRollupRow",
    "SignalSetRow",
    "StretchRow",
    "access",
    "alerts",
]
