"""How signals are called in Prometheus: `trimtab_`, the signal, its unit.

One metric a signal, and none with the signal as a label: a sum over entropies and gradient norms means nothing. A share
is a `ratio` there, so `clip_fraction_negative` is `trimtab_clip_negative_ratio`.
"""

from __future__ import annotations

from trimtab.agent.signals import SIGNALS
from trimtab.agent.signals.units import UNITS, Unit


def metric_name(signal: str) -> str:
    """Name of a signal's metric."""
    unit = UNITS[signal]
    name = f"trimtab_{signal.replace('_fraction', '') if unit is Unit.RATIO else signal}"
    return name if not unit or name.endswith(f"_{unit}") else f"{name}_{unit}"


def _told(text: str | None) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((text or "").split("\n\n")[0].split())


SIGNAL_METRICS: dict[str, tuple[str, str]] = {
    signal: (metric_name(signal), _told(read.__doc__)) for signal, read in SIGNALS.items()
}
"""Name and help of each signal's metric."""
