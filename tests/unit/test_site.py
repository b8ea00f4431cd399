"""Queues by name, as their informer brings them."""

from __future__ import annotations

from fixtures import reporting
from railwright_api import names
from railwright_operator.watch.site import Site


def test_queue_created_again_outlives_late_deletion_of_first() -> None:
    """The new queue arrives before the deletion of the old one."""
    site = Site()
    second = reporting.raw_object("a", version=5, metadata={"uid": "second"})
    reporting.set_object(site, names.QUEUES, second)
    first = reporting.raw_object("a", version=4, metadata={"uid": "first"})
    reporting.set_object(site, names.QUEUES, first, gone=True)
    assert site.queues == ("a",)
    reporting.set_object(site, names.QUEUES, second, gone=True)
    assert not site.queues
