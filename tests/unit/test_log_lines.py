"""What may happen thousands of times a second is logged a few times."""

from __future__ import annotations

from railwright.log_lines import Milestones


def test_count_is_logged_whenever_it_doubled() -> None:
    count = Milestones("many")
    logged = [count.add() for _ in range(1000)]
    assert [each for each in logged if each] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert (count.add(10), count.add(14)) == (0, 1024)
