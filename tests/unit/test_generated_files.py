"""The report on generated files counts what a reader of one raises."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fixtures import generated_files, generated_report
from fixtures.generated_files import FileGenerator
from fixtures.generated_report import Report
from railwright_topology.sources import formats


def checked(seed: int) -> Report:
    drawn, report = FileGenerator(random.Random(seed)), Report()
    stored = drawn.config_map()
    stored["metadata"] |= {"uid": "u", "namespace": "default", "resourceVersion": "1"}
    generated_report.check_site(generated_files.PLURAL, stored, drawn.nodes, report)
    return report


def test_generated_files_raise_nothing() -> None:
    for seed in range(20):
        report = checked(seed)
        assert report.is_clean, report.examples


def test_file_that_raises_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(file: Any) -> Any:
        raise KeyError("planted")

    monkeypatch.setattr(formats, "read", read)
    report = checked(0)
    assert (report.raised, report.over_budget, report.delayed_others) == (1, 0, 0)
    assert "could not be read: KeyError" in report.examples[0]
