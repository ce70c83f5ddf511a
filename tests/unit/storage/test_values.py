"""Kinds of numbers."""

import math

import pytest

from trimtab.storage.values import ValueKind


@pytest.mark.parametrize(
    ("value", "kind"),
    [(0.5, "finite"), (math.nan, "nan"), (math.inf, "+inf"), (-math.inf, "-inf")],
)
def test_every_number_has_a_kind(value: float, kind: str) -> None:
    assert ValueKind.of(value) == kind
