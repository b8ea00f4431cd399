"""An operator restarted in front of an API server with an old state undoes nothing."""

from __future__ import annotations

import ssl

from fixtures import relay
from fixtures.api_faults import Elsewhere
from integration import operator_site
from integration.operator_site import Job, Site
from railwright_testbed import waiting


def test_server_with_an_older_state_undoes_nothing(site: Site) -> None:
    """Its Lease and its writes reach the living server, what it reads of jobs and pods does not."""
    with (
        relay.in_front_of(site.plane.etcd_port) as etcd,
        site.plane.second_api_server(etcd_port=etcd.port) as second,
        operator_site.floor_on(site, (2,)) as floor,
    ):
        floor.apply("old").until_bound()
        etcd.freeze()
        floor.clear()
        new = floor.apply("new")
        new.until_bound()
        new.until_reason("AtBarrier")
        waiting.until(
            lambda: all(pod["status"]["phase"] == "Running" for pod in new.pods()),
            "its pods run, and change no more",
            deadline_s=60,
        )
        before, versions = site.ledger()["spec"]["epoch"], _versions(new)
        tls = ssl.create_default_context(cafile=str(second.ca_file))
        past = [
            site.proxy.fail(f"read {what}", Elsewhere(second.url, tls), times=None)
            for what in ("pods", "trainingjobs")
        ]
        try:
            operator_site.start_again(site)
            pods, jobs = past
            waiting.until(lambda: pods.met and jobs.met > 1, "reads", deadline_s=60)
            assert _versions(new) == versions
        finally:
            site.proxy.lift_all()
            etcd.thaw()
        floor.apply("late", nodes=2).until_reason("NotEnoughNodes", deadline_s=60)
        assert site.ledger()["spec"]["epoch"] == before + 1
        assert _versions(new) == versions


def _versions(job: Job) -> list[str]:
    """Of its pods, and of all that its status decides."""
    status = job.status()
    pods = [pod["metadata"]["resourceVersion"] for pod in job.pods()]
    return [*pods, str(status["attempt"]), status["phase"], *job.nodes()]
