"""The figures of a check against its bars."""

from __future__ import annotations

import json

import pytest

from bench import bars

FIGURES = {"queries": 3, "queries_with_data": 3, "series": 7}
WHOLE, AT_MOST = {"queries_with_data": "queries"}, {"series": 7}


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({}, ""),
        ({"queries_with_data": 2}, "queries_with_data is 2, expected 3"),
        ({"series": 8}, "series is 8, expected at most 7"),
    ],
)
def test_missed_bar_is_named_and_fails(
    change: dict[str, int], missed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = FIGURES | change
    assert bars.publish(figures, whole=WHOLE, at_most=AT_MOST) == bool(missed)
    output, errors = capsys.readouterr()
    assert json.loads(output) == figures
    assert missed in errors
    assert bool(errors) == bool(missed)
