"""The cached Fabric: what the site configured, and what was published last."""

from __future__ import annotations

import pytest

from fixtures import office, reporting
from fixtures.office import fabric
from fixtures.reporting import Raw
from railwright_api.fabric import Probing
from railwright_controllers.watch.fabric import FabricCache
from railwright_watch import cluster_objects
from railwright_watch.cluster_objects import ClusterObject


def record(level: str, *, uid: str = "first", name: str = "default") -> ClusterObject:
    raw = reporting.raw_object(name, spec={"levels": [level]}, metadata={"uid": uid})
    return cluster_objects.answered(raw)


def test_change_and_deletion_of_the_fabric_are_taken_in() -> None:
    cache, first, changed = FabricCache(), record("a"), record("b")
    cache.change(None, first)
    assert cache.held is first
    cache.change(first, changed)
    assert cache.held is changed
    cache.change(changed, None)
    assert cache.held is None


def test_fabric_of_another_name_is_ignored() -> None:
    cache, first, other = FabricCache(), record("a"), record("b", uid="other", name="other")
    cache.change(None, other)
    assert cache.held is None
    cache.change(None, first)
    cache.change(None, other)
    cache.change(other, record("c", uid="other", name="other"))
    cache.change(other, None)
    assert cache.held is first


def test_fabric_created_again_outlives_late_deletion() -> None:
    """The new Fabric arrives before the deletion of the old one."""
    cache, first, second = FabricCache(), record("a"), record("b", uid="second")
    cache.change(None, first)
    cache.change(None, second)
    cache.change(first, None)
    assert cache.levels == ("b",)
    cache.change(second, None)
    assert cache.held is None
    cache.change(second, None)
    assert cache.held is None


@pytest.mark.parametrize("raw", [None, fabric(), reporting.raw_object("default", spec=None)])
def test_defaults_count_where_nothing_is_configured(raw: Raw | None) -> None:
    """Without a Fabric no node is measured."""
    cache = FabricCache() if raw is None else office.fabric_cache(raw)
    assert cache.levels == ()
    assert cache.probing == (Probing(mode="Never") if raw is None else Probing())


def test_configuration_is_read() -> None:
    probing = {"mode": "Always", "maxAgeHours": 24, "uplinks": True}
    spec = {"levels": ["row", "rack"], "probing": probing}
    raw = reporting.raw_object("default", spec=spec)
    cache = office.fabric_cache(raw)
    assert cache.levels == ("row", "rack")
    assert cache.probing == Probing(mode="Always", max_age_hours=24, uplinks=True)
