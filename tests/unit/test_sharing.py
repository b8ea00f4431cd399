"""What is left of uplinks where several jobs send through them."""

from __future__ import annotations

import pytest

from railwright_scheduler.cost.contention import UplinkUse, left


def test_alone_a_job_has_all_of_it() -> None:
    assert left(2.7, 3.0, []) == 2.7


def test_what_others_send_seldom_is_all_that_is_missing() -> None:
    assert left(4.0, 4.0, [UplinkUse(0.5, 4.0), UplinkUse(0.25, 8.0)]) == 3.25


def test_constant_senders_get_their_share_of_adapters() -> None:
    assert left(4.0, 4.0, [UplinkUse(12.0, 12.0)]) == 1.0
    assert left(4.0, 4.0, [UplinkUse(4.0, 4.0), UplinkUse(8.0, 8.0)]) == 1.0


def test_unused_share_goes_to_all_others() -> None:
    """Of 4, the first sends 1 and could send 2; the others share 3 as 8 to 4."""
    assert left(4.0, 4.0, [UplinkUse(1.0, 8.0), UplinkUse(8.0, 8.0)]) == pytest.approx(1.0)
