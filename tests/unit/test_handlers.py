"""kopf's thread: how long it waits before kopf is started again."""

from __future__ import annotations

from railwright_operator import handlers


def test_failures_in_a_row_are_counted_and_one_that_lasted_starts_anew() -> None:
    assert handlers.failures_before(7, lived_s=1.0) == 7
    assert handlers.failures_before(7, lived_s=handlers.LASTED_S) == 0
