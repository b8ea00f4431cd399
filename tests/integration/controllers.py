"""Controllers that a test ends, and starts again."""

from __future__ import annotations

from integration import operator_site
from integration.operator_site import Site
from railwright_testbed.controllers_process import SERVICE_ACCOUNT

LEASE = f"{operator_site.LEASES}/{SERVICE_ACCOUNT}"


def start_again(site: Site) -> None:
    """Start the controllers anew after their end, without a wait for the Lease of the dead ones."""
    site.controllers.stop()
    site.admin.delete(LEASE)
    site.controllers.start()
