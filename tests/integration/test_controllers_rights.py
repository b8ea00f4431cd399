"""The rights of the controllers: each is used, and no request lacks one. By the audit log."""

from __future__ import annotations

from pathlib import Path

from integration import granted_rights
from integration.operator_site import Floor, Site
from railwright_testbed import audit, waiting
from railwright_testbed.audit import Right
from railwright_testbed.controllers_process import SERVICE_ACCOUNT

MANIFESTS = "controllers.yaml"
DRIVEN_S = 40.0
ELSEWHERE = granted_rights.used_elsewhere(audit.CONTROLLERS)


def test_controllers_use_every_right_and_lack_none(site: Site, floor: Floor) -> None:
    """The new nodes of ``floor`` change the Fabric."""
    granted = granted_rights.granted(MANIFESTS)
    assert granted >= ELSEWHERE
    granted -= ELSEWHERE
    assert site.controllers.scrape()
    waiting.until(
        lambda: not granted - _used(site, granted),
        "every right used",
        deadline_s=DRIVEN_S,
        evidence=lambda: f"never used: {sorted(granted - _used(site, granted))}",
    )
    used = _used(site, granted)
    assert used - ELSEWHERE == granted, f"asked for without a right: {sorted(used - granted)}"
    paths = granted_rights.used_paths(site.plane.audit_log, audit.CONTROLLERS)
    assert paths == granted_rights.granted_paths(MANIFESTS)


def test_controllers_have_no_rights_elsewhere() -> None:
    """All roles that are bound to their account are those that the other test holds them to."""
    assert granted_rights.bound_roles(SERVICE_ACCOUNT) == granted_rights.defined_roles(MANIFESTS)


def test_rights_used_elsewhere_are_asserted_there() -> None:
    folder = Path(__file__).parent
    for test in granted_rights.USED_BY:
        assert "granted_rights.expect_used(" in (folder / f"{test}.py").read_text(), test


def _used(site: Site, granted: set[Right]) -> set[Right]:
    return granted_rights.used(site.plane.audit_log, audit.CONTROLLERS, granted)
