"""The figures of a check against its bars."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench import bars

FIGURES = {"queries": 3, "queries_with_data": 3, "series": 7, "busy": {"cpu_ms": 99.0}, "gain": 2.1}
WHOLE = {"queries_with_data": "queries"}
AT_MOST, AT_LEAST = {"series": 7, "busy.cpu_ms": 100.0}, {"gain": 2.1}


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({}, ""),
        ({"queries_with_data": 2}, "queries_with_data is 2, expected 3"),
        ({"series": 8}, "series is 8.0, expected at most 7"),
        ({"busy": {"cpu_ms": 101.0}}, "busy.cpu_ms is 101.0, expected at most 100.0"),
        ({"busy": {}}, "busy.cpu_ms is nan, expected at most 100.0"),
        ({"gain": 2.0}, "gain is 2.0, expected at least 2.1"),
    ],
)
def test_missed_bar_is_named_and_fails(
    change: dict[str, Any], missed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = FIGURES | change
    assert bars.publish(figures, whole=WHOLE, at_most=AT_MOST, at_least=AT_LEAST) == bool(missed)
    output, errors = capsys.readouterr()
    assert json.loads(output) == figures
    assert missed in errors
    assert bool(errors) == bool(missed)
