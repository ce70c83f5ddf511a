"""The metrics of jobs in Prometheus' text format, written quickly.

A fleet of 200 jobs has some 19,000 samples. `prometheus_client` takes longer to write them than a whole scrape takes
here (`trimtab bench scrape`), and holds the interpreter all the while, which requests need too. Names of jobs,
detectors and remedies hold nothing that would have to be escaped, so that a line is one format.
"""

from __future__ import annotations

import math
from typing import Literal


class Family:
    """One metric and its samples."""

    __slots__ = ("_lines", "help", "kind", "name")

    def __init__(self, name: str, help: str, kind: Literal["gauge", "counter"] = "gauge") -> None:
        self.name, self.help, self.kind = name, help, kind
        self._lines: list[str] = []

    def add(self, labels: str, value: float) -> None:
        """One more sample; `labels` are made by `labelled`."""
        self._lines.append(f"{self.name}{labels} {value if math.isfinite(value) else _not_finite(value)}\n")

    def text(self) -> str:
        """The metric as it is exposed. Without samples it is announced all the same."""
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n{''.join(self._lines)}"


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def labelled(**labels: str) -> str:
    """A label set. The values must hold no quote, backslash or line break, as no name of a job does."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
