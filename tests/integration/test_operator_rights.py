"""Granted minus used permissions: empty; used minus granted: empty. By the audit log."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from fixtures.api_faults import Fault
from integration.operator_site import Floor, Site
from railwright_api import names
from railwright_testbed import audit, waiting
from railwright_testbed.audit import Right
from railwright_testbed.operator_process import NAMESPACE, SERVICE_ACCOUNT
from railwright_testbed.simulated_launchers import Played, SimulatedLaunchers

ROOT = Path(__file__).resolve().parents[2]
ANYWHERE = "any namespace"
DRIVEN_S = 40.0
CHANGES = 50
KEEPING_SURVEYS = Right("patch", "", "configmaps", "", NAMESPACE)
STORING_PROFILES = {
    Right(verb, names.GROUP, names.PROFILES, "", ANYWHERE) for verb in ("create", "patch")
}
"""After a recording. ``test_operator_profile`` makes one, with an operator of the same rights."""
WRITING_HEALTHS = {
    Right(verb, names.GROUP, names.NODE_HEALTHS, "", ANYWHERE) for verb in ("create", "patch")
}
"""Of nodes with agents, as in ``test_operator_hardware``."""
DISCOVERED = re.compile(r"/apis?(/[^/]+){0,2}|/version")
"""Which kinds there are: Kubernetes lets every account ask (its role ``system:discovery``)."""

MAIN = {"name": "train", "image": "i", "command": ["c"]}
PLAYED = Played(steps=12, checkpoint_interval_steps=4)


def test_every_right_is_used_and_no_request_lacks_one(site: Site, floor: Floor) -> None:
    """The shared operator's whole account, once this test has sent it down its rarer ways. What it
    measures is of all nodes, so there is an operator for that alone (``test_operator_surveys``)."""
    granted = rights(ROOT / "deploy/operator.yaml")
    assert KEEPING_SURVEYS in granted
    granted -= {KEEPING_SURVEYS, *STORING_PROFILES, *WRITING_HEALTHS}
    with SimulatedLaunchers(site.plane, PLAYED) as launchers:
        finished = floor.apply("finished", ttlSecondsAfterFinished=1)
        lost = floor.apply("lost", nodes=1)
        lost.until_phase("Running")
        launchers.silence(lost.nodes()[0])
        waiting.until(lambda: not finished.object(), "its time is over", deadline_s=DRIVEN_S)
        lost.until_reason("LauncherSilent")
    _answer_to_a_create_lost(floor)
    _name_taken_by_a_placement(floor)
    refused = {"spec": {"containers": [MAIN], "securityContext": "none"}}
    floor.apply("refused", nodes=1, template=refused).until_reason("CommitRefused")
    floor.apply("restless", suspend=True)
    waiting.until(
        lambda: _changed_under_it(floor) and not granted - _used(site, granted),
        "every right used",
        deadline_s=DRIVEN_S,
        evidence=lambda: f"never used: {sorted(granted - _used(site, granted))}",
    )
    used = _used(site, granted)
    assert used - STORING_PROFILES - WRITING_HEALTHS == granted, (
        f"asked for without a right: {sorted(used - granted)}"
    )
    asked = audit.paths_used(site.plane.audit_log, audit.OPERATOR)
    others = {(verb, path) for verb, path in asked if not DISCOVERED.fullmatch(path)}
    assert others == paths(ROOT / "deploy/operator.yaml")


def test_operator_has_no_rights_elsewhere() -> None:
    """All roles that are bound to its account are those that the other test holds it to."""
    documents = [
        document
        for file in sorted((ROOT / "deploy").rglob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
    ]
    bound = {
        document["roleRef"]["name"]
        for document in documents
        for subject in document.get("subjects") or ()
        if "roleRef" in document and subject["name"] == SERVICE_ACCOUNT
    }
    roles = {role["metadata"]["name"] for role in _roles(ROOT / "deploy/operator.yaml")}
    assert bound == roles


def rights(manifests: Path) -> set[Right]:
    """What the roles of these manifests grant of resources."""
    return {
        Right(verb, group, *_split(resource), role["metadata"].get("namespace", ANYWHERE))
        for role in _roles(manifests)
        for rule in role["rules"]
        for group in rule.get("apiGroups", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def paths(manifests: Path) -> set[tuple[str, str]]:
    """What they grant beside: verbs and paths, such as those of the keys of tokens."""
    return {
        (verb, path)
        for role in _roles(manifests)
        for rule in role["rules"]
        for path in rule.get("nonResourceURLs", ())
        for verb in rule["verbs"]
    }


def _roles(manifests: Path) -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(manifests.read_text()))
    return [each for each in documents if each["kind"] in ("Role", "ClusterRole")]


def _split(resource: str) -> tuple[str, str]:
    name, _, subresource = resource.partition("/")
    return name, subresource


def _used(site: Site, granted: set[Right]) -> set[Right]:
    """What the operator asked for, each under the right that allows it, if there is one."""
    asked = audit.used(site.plane.audit_log, audit.OPERATOR)
    return {right if right in granted else right._replace(namespace=ANYWHERE) for right in asked}


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
