"""Granted minus used permissions: empty; used minus granted: empty. By the audit log."""

from __future__ import annotations

from fixtures.api_faults import Fault
from integration import granted_rights
from integration.operator_site import Floor, Site
from railwright_api import names
from railwright_operator.write.old_placements import KEPT
from railwright_testbed import audit, waiting
from railwright_testbed.audit import Right
from railwright_testbed.operator_process import SERVICE_ACCOUNT
from railwright_testbed.simulated_launchers import Played, SimulatedLaunchers

MANIFESTS = "operator.yaml"
DRIVEN_S = 40.0
CHANGES = 50
ELSEWHERE = granted_rights.used_elsewhere(audit.OPERATOR)

MAIN = {"name": "train", "image": "i", "command": ["c"]}
PLAYED = Played(steps=12, checkpoint_interval_steps=4)


def test_every_right_is_used_and_no_request_lacks_one(site: Site, floor: Floor) -> None:
    """The shared operator's whole account, once this test has sent it down its rarer ways."""
    granted = granted_rights.granted(MANIFESTS)
    assert granted >= ELSEWHERE
    granted -= ELSEWHERE
    with SimulatedLaunchers(site.plane, PLAYED) as launchers:
        finished = floor.apply("finished", ttlSecondsAfterFinished=1)
        lost = floor.apply("lost", nodes=1)
        lost.until_phase("Running")
        launchers.silence(lost.nodes()[0])
        waiting.until(lambda: not finished.object(), "its time is over", deadline_s=DRIVEN_S)
        lost.until_reason("LauncherSilent")
    _answer_to_a_create_lost(floor)
    _name_taken_by_a_placement(floor)
    _more_placements_than_a_job_keeps(floor)
    refused = {"spec": {"containers": [MAIN], "securityContext": "none"}}
    floor.apply("refused", nodes=1, template=refused).until_reason("CommitRefused")
    floor.apply("restless", suspend=True)
    assert site.operator.scrape()
    waiting.until(
        lambda: _changed_under_it(floor) and not granted - _used(site, granted),
        "every right used",
        deadline_s=DRIVEN_S,
        evidence=lambda: f"never used: {sorted(granted - _used(site, granted))}",
    )
    used = _used(site, granted)
    assert used - ELSEWHERE == granted, f"asked for without a right: {sorted(used - granted)}"
    paths = granted_rights.used_paths(site.plane.audit_log, audit.OPERATOR)
    assert paths == granted_rights.granted_paths(MANIFESTS)


def test_operator_has_no_rights_elsewhere() -> None:
    """All roles that are bound to its account are those that the other test holds it to."""
    assert granted_rights.bound_roles(SERVICE_ACCOUNT) == granted_rights.defined_roles(MANIFESTS)


def _used(site: Site, granted: set[Right]) -> set[Right]:
    return granted_rights.used(site.plane.audit_log, audit.OPERATOR, granted)


def _changed_under_it(floor: Floor) -> bool:
    """Change a job while its status is being written: the operator looks what it is like."""
    path = floor.path(names.TRAINING_JOBS) + "/restless"
    for limit in range(CHANGES):
        floor.site.admin.patch(path, {"spec": {"failurePolicy": {"backoffLimit": limit}}})
    return True


def _answer_to_a_create_lost(floor: Floor) -> None:
    """Whether the pod was made is not known: it is looked at."""
    floor.site.proxy.fail("create pods", Fault.REPLY_LOST, namespace=floor.name)
    uncertain = floor.apply("uncertain", nodes=1, gpus=0)
    uncertain.until_bound()
    uncertain.patch({"suspend": True})


def _name_taken_by_a_placement(floor: Floor) -> None:
    """So has its Placement: the operator looks whose it is."""
    kept = floor.apply("kept", nodes=1, gpus=0)
    kept.until_bound()
    path = floor.path(names.PLACEMENTS)
    placement = floor.site.admin.get(f"{path}/kept-1")
    placement["metadata"] = {"name": "other-1"}
    floor.site.forge(lambda: floor.site.admin.post(path, placement))
    other = floor.apply("other", nodes=1, gpus=0)
    waiting.until(
        lambda: floor.site.proxy.count("get placements", namespace=floor.name) > 0,
        "it is looked at",
        deadline_s=20,
    )
    floor.site.admin.delete(f"{path}/other-1")
    other.until_bound()


def _more_placements_than_a_job_keeps(floor: Floor) -> None:
    """The operator deletes the oldest one."""
    path = floor.path(names.PLACEMENTS)
    placement = floor.site.admin.get(f"{path}/kept-1")
    rest = [*range(2, KEPT + 2)]

    def forge() -> None:
        while rest:
            metadata = {"name": names.placement_name("kept", rest[-1])}
            floor.site.admin.post(path, placement | {"metadata": metadata})
            rest.pop()

    floor.site.forge(forge)
