"""What an app exposes to Prometheus, read as Prometheus would."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]
"""Name and value of each label."""
Samples = dict[str, dict[Labels, float]]
"""By metric and labels."""


def labels(**values: str) -> Labels:
    return frozenset(values.items())


def parsed(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert labels(**sample.labels) not in found.get(sample.name, {}), f"{sample} comes twice"
            found.setdefault(sample.name, {})[labels(**sample.labels)] = sample.value
    return found


def scraped(http: httpx.Client) -> Samples:
    response = http.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    return parsed(response.text)


def of_jobs(samples: dict[Labels, float]) -> dict[str, float]:
    """Samples that have no other label than the job."""
    return {dict(key)["job"]: value for key, value in samples.items() if len(key) == 1}
