"""Kinds of numbers."""

import math

import pytest

from trimtab.storage.values import ValueKind


@pytest.mark.parametrize(
    ("value", "kind"),
    [(0.5, "finite"), (math.nan, "nan"), (math.inf, "+inf"), (-math.inf, "-inf")],
)
def test_kind_and_back(value: float, kind: str) -> None:
    assert ValueKind.of(value) == kind
    stored = value if kind == "finite" else None
    assert repr(ValueKind(kind).restored(stored)) == repr(value)
