"""The admission policies in deploy/, in a cluster with the operator: who may write what, and what a
tenant's job may ask for."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from history import notes
from integration import manifests
from integration.operator_site import Floor, Job, Site
from railwright_api import names
from railwright_testbed import audit, waiting
from railwright_testbed.api_client import MERGE_PATCH, ApiClient, ApiError

Changes = dict[str, Any]
TENANT = "tenant-a"
JOBS = manifests.path(names.TRAINING_JOBS, TENANT)


@pytest.fixture(scope="module")
def alice(site: Site) -> Iterator[ApiClient]:
    """A user with the policies in force, who may do anything to our objects in a tenant's
    namespace, and read one secret."""
    kubectl = site.plane.kubectl
    kubectl("create", "namespace", TENANT)
    kubectl("label", "namespace", TENANT, f"{names.GROUP}/tenant=restricted")
    kubectl("annotate", "namespace", TENANT, f"{names.GROUP}/service-accounts=default,trainer")
    kubectl("-n", TENANT, "create", "serviceaccount", "alice")
    edits = (f"{kind}.{names.GROUP}{part}" for kind in _KINDS for part in ("", "/status"))
    _allow(site, "jobs", "--verb=*", f"--resource=pods,{','.join(edits)}")
    _allow(site, "secret", "--verb=get", "--resource=secrets", "--resource-name=mine")
    with contextlib.closing(site.plane.service_account_client(TENANT, "alice")) as client:
        hostile = manifests.job(pod={"hostNetwork": True})
        waiting.until(
            lambda: "hostNetwork" in _answer(client, hostile), "the policies", deadline_s=30
        )
        yield client


_KINDS = (names.TRAINING_JOBS, names.PLACEMENTS, names.PROFILES)


def _allow(site: Site, name: str, *rules: str) -> None:
    site.plane.kubectl("-n", TENANT, "create", "role", name, *rules)
    who = f"--serviceaccount={TENANT}:alice"
    site.plane.kubectl("-n", TENANT, "create", "rolebinding", name, f"--role={name}", who)


def _answer(client: ApiClient, job: Changes) -> str:
    """How the job is refused; empty if it is not."""
    try:
        client.post(JOBS + manifests.ASK, job)
    except ApiError as error:
        return str(error)
    return ""


def _volume(source: Changes) -> Changes:
    return {"volumes": [{"name": "v", **source}]}


def _security(**context: Any) -> Changes:
    return {"securityContext": context}


SECRETS = "it reads secrets, and you may not get all of them yourself: theirs"
KEY = {"name": "theirs", "key": "k"}
MINE = {"name": "mine", "key": "k"}


@pytest.mark.parametrize(
    ("pod", "container", "words"),
    [
        ({"hostNetwork": True}, {}, "template.spec.hostNetwork: pods of this namespace stay"),
        ({"hostPID": True}, {}, "template.spec.hostPID: pods of this namespace stay off"),
        ({"hostIPC": True}, {}, "template.spec.hostIPC: pods of this namespace stay off"),
        (_volume({"hostPath": {"path": "/"}}), {}, "such as hostPath: use a persistentVolumeClaim"),
        (_volume({"iscsi": {"lun": 1}}), {}, "is of a kind that this namespace may not mount"),
        ({}, _security(privileged=True), "securityContext.privileged: pods of this namespace"),
        ({}, _security(capabilities={"add": ["SYS_ADMIN"]}), "adds capabilities; in this"),
        ({}, {"ports": [{"containerPort": 1, "hostPort": 2}]}, "ports.hostPort: pods of this"),
        ({"serviceAccountName": "strong"}, {}, "is not allowed here, only default, trainer: see"),
        ({"serviceAccount": "strong"}, {}, "is not allowed here, only default, trainer: see"),
        ({"serviceAccountName": "trainer", "serviceAccount": "strong"}, {}, "is not allowed here"),
        ({}, {"env": [{"name": "A", "valueFrom": {"secretKeyRef": KEY}}]}, SECRETS),
        ({}, {"envFrom": [{"secretRef": {"name": "theirs"}}]}, SECRETS),
        (_volume({"secret": {"secretName": "theirs"}}), {}, SECRETS),
        (_volume({"projected": {"sources": [{"secret": {"name": "theirs"}}]}}), {}, SECRETS),
        ({}, {"envFrom": [{"secretRef": {"name": "mine"}}] * 9}, "it reads 9 secrets, in this"),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_tenant_job_with_host_or_foreign_rights_is_refused(
    alice: ApiClient, pod: Changes, container: Changes, words: str
) -> None:
    assert words in _answer(alice, manifests.job(pod=pod, container=container))


def test_an_init_container_is_held_to_the_same(alice: ApiClient) -> None:
    hostile = {"name": "x", "image": "i", "securityContext": {"privileged": True}}
    answer = _answer(alice, manifests.job(pod={"initContainers": [hostile]}))
    assert "securityContext.privileged" in answer


@pytest.mark.parametrize(
    ("pod", "container"),
    [
        ({}, {}),
        ({"hostNetwork": False, "serviceAccountName": "trainer"}, {}),
        ({}, {"env": [{"name": "A", "valueFrom": {"secretKeyRef": MINE}}]}),
        (_volume({"secret": {"secretName": "mine"}}), {"envFrom": [{"secretRef": MINE}]}),
        (_volume({"persistentVolumeClaim": {"claimName": "c"}}), {}),
        ({}, _security(capabilities={"add": ["IPC_LOCK"], "drop": ["ALL"]}, privileged=False)),
    ],
)
def test_a_tenants_job_within_its_rights_is_taken(
    alice: ApiClient, pod: Changes, container: Changes
) -> None:
    assert _answer(alice, manifests.job(pod=pod, container=container)) == ""


def test_template_cannot_change_into_a_refused_one(alice: ApiClient) -> None:
    """The rules for a new template apply to a change of one too."""
    alice.post(JOBS, manifests.job("held", spec={"suspend": True}))
    with pytest.raises(ApiError, match="hostPID: pods of this namespace stay off the host"):
        alice.patch(f"{JOBS}/held", {"spec": manifests.roles({"hostPID": True})})
    alice.patch(f"{JOBS}/held", {"spec": {"failurePolicy": {"backoffLimit": 7}}})


def test_namespace_without_the_label_is_not_restricted(site: Site, floor: Floor) -> None:
    site.admin.post(
        floor.path(names.TRAINING_JOBS) + manifests.ASK, manifests.job(pod={"hostPID": True})
    )


def test_a_status_is_written_by_the_operator_alone(site: Site, alice: ApiClient) -> None:
    alice.post(JOBS, manifests.job("forged", spec={"suspend": True}))
    for client in (alice, site.admin):
        with pytest.raises(ApiError, match="trainingjobs/status: the operator alone writes it"):
            client.patch(f"{JOBS}/forged/status", {"status": {"phase": "Succeeded"}})
    waiting.until(
        lambda: alice.get(f"{JOBS}/forged").get("status", {}).get("phase") == "Suspended",
        "the operator's own status",
        deadline_s=20,
    )


@pytest.mark.parametrize(
    ("claim", "breaks"),
    [
        ({"phase": "Succeeded"}, "I6"),
        ({"attempt": 2**62, "endedAttempt": 2**62 - 1}, "I7"),
        ({"nodes": 7}, ""),
        ({"phase": "Queued", "attempt": 0, "nodes": None}, "I7"),
    ],
    ids=str,
)
def test_forged_status_is_corrected_and_harms_no_other_job(
    site: Site, floor: Floor, claim: Changes, breaks: str
) -> None:
    """The status was written before the policy that forbids it existed."""
    job = floor.apply("forged")
    before = job.until_bound()
    path = f"{floor.path(names.TRAINING_JOBS)}/forged/status"
    because = f"a status is forged: {claim}"
    with (
        contextlib.nullcontext()
        if not breaks
        else notes.outside_guarantees(site.plane, breaks, because=because)
    ):
        site.forge(lambda: site.admin.patch(path, {"status": claim}))
        assert floor.apply("other").until_bound()["phase"] == "Starting"
        status = job.until(lambda found: _agrees(job, found), "a status that is true again")
    if claim.get("attempt") != 0:
        assert (status["attempt"], status["nodes"]) == (1, before["nodes"])


def _agrees(job: Job, status: Changes) -> bool:
    bound = job.bound(status["attempt"])
    return (
        status["phase"] == "Starting"
        and status["nodes"] == len(bound)
        and bound == dict(enumerate(job.nodes())) != {}
    )


@pytest.mark.parametrize(
    ("plural", "writer"),
    [(names.QUEUES, "the operator alone writes"), (names.FABRICS, "the controllers alone write")],
)
def test_site_status_has_one_writer(site: Site, plural: str, writer: str) -> None:
    """The policy refuses writes of the statuses of Queue and Fabric by other users."""
    path = f"{manifests.path(plural)}/{names.SINGLETON}/status"
    with pytest.raises(ApiError, match=f"{plural}/status: {writer} it"):
        site.admin.patch(path, {"status": {"nodes": 7, "waiting": 7}})


def test_a_ledger_is_written_by_the_operator_alone(site: Site) -> None:
    path = manifests.path(names.LEDGERS)
    with pytest.raises(ApiError, match="ledgers: the operator alone writes it"):
        site.admin.patch(f"{path}/{names.SINGLETON}", {"spec": {"epoch": 10**9}})
    # What changes nothing of it, such as a migration of the storage, is nobody's harm.
    annotations = {"metadata": {"annotations": {"example.com/migrated": "yes"}}}
    site.admin.patch(f"{path}/{names.SINGLETON}", annotations, content_type=MERGE_PATCH)


def test_node_health_is_written_by_controllers_alone(site: Site) -> None:
    forged = manifests.cluster_object("NodeHealth", "n", slow=["it is not"])
    with pytest.raises(ApiError, match="nodehealths: the controllers alone write it"):
        site.admin.post(manifests.path(names.NODE_HEALTHS), forged)


@pytest.mark.parametrize(
    ("kind", "plural", "spec"),
    [
        ("Placement", names.PLACEMENTS, {"epoch": 1, "nodes": ["n"], "reason": "mine"}),
        ("Profile", names.PROFILES, {"document": "{}"}),
    ],
)
def test_objects_of_jobs_are_made_by_the_operator_alone(
    alice: ApiClient, kind: str, plural: str, spec: dict[str, Any]
) -> None:
    forged = manifests.cluster_object(kind, "forged-1", jobUID="u", attempt=1, **spec)
    with pytest.raises(ApiError, match=f"{plural}: the operator alone writes it"):
        alice.post(manifests.path(plural, TENANT), forged)


def _answer_to(site: Site, user: str, *command: str, stdin: str | None = None) -> str:
    """What the API server says to this user, who has all rights; empty if it accepts the change."""
    options = ("--dry-run=server", f"--as={user}", "--as-group=system:masters")
    try:
        site.plane.kubectl(*command, *options, stdin=stdin)
    except subprocess.CalledProcessError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("plural", "writer", "other"),
    [
        (names.QUEUES, audit.OPERATOR, audit.CONTROLLERS),
        (names.FABRICS, audit.CONTROLLERS, audit.OPERATOR),
    ],
)
def test_status_policy_separates_the_two_accounts(
    site: Site, plural: str, writer: str, other: str
) -> None:
    """By the account, whatever its rights."""
    change = json.dumps({"status": {"waiting": 7, "nodes": 7}})
    command = ("patch", plural, names.SINGLETON, "--subresource=status", "--type=merge")
    assert _answer_to(site, writer, *command, "-p", change) == ""
    assert f"{plural}/status: the " in _answer_to(site, other, *command, "-p", change)


HEALTH = manifests.cluster_object("NodeHealth", "made-up")
MADE = ("create", "-f", "-")
RAISED = ("patch", names.LEDGERS, names.SINGLETON, "--type=merge", "-p", '{"spec":{"epoch":900}}')


@pytest.mark.parametrize(
    ("plural", "command", "stdin", "writer", "other"),
    [
        (names.NODE_HEALTHS, MADE, json.dumps(HEALTH), audit.CONTROLLERS, audit.OPERATOR),
        (names.LEDGERS, RAISED, None, audit.OPERATOR, audit.CONTROLLERS),
    ],
)
def test_object_policy_separates_the_two_accounts(
    site: Site, plural: str, command: tuple[str, ...], stdin: str | None, writer: str, other: str
) -> None:
    """By the account, whatever its rights."""
    assert _answer_to(site, writer, *command, stdin=stdin) == ""
    assert f"{plural}: the " in _answer_to(site, other, *command, stdin=stdin)


def _pod(name: str, **labels: str) -> Changes:
    """A pod of alice's with these labels of our group."""
    ours = {f"{names.GROUP}/{key.replace('_', '-')}": value for key, value in labels.items()}
    container = {"name": "c", "image": "i"}
    return {"metadata": {"name": name, "labels": ours}, "spec": {"containers": [container]}}


def test_pods_with_our_labels_are_made_by_operator_alone(
    site: Site, floor: Floor, alice: ApiClient
) -> None:
    """The policy refuses pods with our labels from other users."""
    mine, pods = f"/api/v1/namespaces/{TENANT}/pods", f"/api/v1/namespaces/{floor.name}/pods"
    refused = "is reserved, the operator alone sets it: remove it"
    with pytest.raises(ApiError, match=refused):
        alice.post(mine, _pod("looks-worker-0-1", job_uid="u", attempt="1"))
    alice.post(mine, _pod("plain"))
    with pytest.raises(ApiError, match=refused):
        alice.patch(f"{mine}/plain", {"metadata": {"labels": {names.LABEL_JOB_UID: "u"}}})
    floor.apply("job", nodes=1).until_bound()
    for change in ({names.LABEL_ATTEMPT: "7"}, {names.LABEL_JOB_UID: None}):
        with pytest.raises(ApiError, match=refused):
            site.admin.patch(f"{pods}/job-worker-0-1", {"metadata": {"labels": change}})
    site.admin.patch(f"{pods}/job-worker-0-1", {"metadata": {"labels": {"team": "blue"}}})


@pytest.mark.parametrize(
    ("change", "subresource", "words"),
    [
        ({"metadata": {"ownerReferences": None}}, "", "metadata.ownerReferences: the TrainingJob"),
        ({"metadata": {"finalizers": ["example.com/kept"]}}, "", "metadata.finalizers: a finaliz"),
        ({"metadata": {"finalizers": ["example.com/kept"]}}, "/status", "metadata.finalizers: a f"),
        ({"metadata": {"labels": {names.LABEL_JOB_UID: None}}}, "/status", "is reserved, the oper"),
        ({"status": {"phase": "Succeeded"}}, "/status", "the kubelet alone writes the status"),
        ({"status": {"phase": "Failed"}}, "/status", "the kubelet alone writes the status"),
    ],
    ids=str,
)
def test_pod_of_a_job_is_guarded(
    site: Site, floor: Floor, change: Changes, subresource: str, words: str
) -> None:
    """Without its owner an old pod would run beside the next attempt; held by a finalizer, its
    devices would stay reserved."""
    floor.apply("job", nodes=1).until_bound()
    with pytest.raises(ApiError, match=words):
        site.admin.patch(
            f"/api/v1/namespaces/{floor.name}/pods/job-worker-0-1{subresource}", change
        )


def test_pod_of_a_job_keeps_its_user_metadata_free(site: Site, floor: Floor) -> None:
    floor.apply("job", nodes=1).until_bound()
    path = f"/api/v1/namespaces/{floor.name}/pods/job-worker-0-1"
    site.admin.patch(path, {"metadata": {"annotations": {"note": "mine"}}})


CONTROLLERS = "system:serviceaccount:kube-system:"
WRITERS = (
    f"{CONTROLLERS}pod-garbage-collector",
    f"{CONTROLLERS}node-controller",
    f"{CONTROLLERS}device-taint-eviction-controller",
    f"{CONTROLLERS}disruption-controller",
    f"{CONTROLLERS}resource-claim-controller",
    "system:kube-scheduler",
    "system:kube-controller-manager",
)
COLLECTOR = f"{CONTROLLERS}generic-garbage-collector"
OF_JOBS = f"{CONTROLLERS}job-controller"


def _refusal(site: Site, namespace: str, user: str, change: Changes, *more: str) -> str:
    """What the API server says to this user, who has the rights; empty if the change is taken."""
    asked = ("patch", "pod", "job-worker-0-1", "--dry-run=server", "-p", json.dumps(change), *more)
    groups = ("--as-group=system:masters", "--as-group=system:authenticated")
    try:
        site.plane.kubectl("-n", namespace, *asked, f"--as={user}", *groups)
    except subprocess.CalledProcessError as error:
        return str(error)
    return ""


def test_pod_status_writers_are_excepted(site: Site, floor: Floor) -> None:
    """Each account that the policy lists, and no other."""
    floor.apply("job", nodes=1).until_bound()
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "Tested"}

    def refusal(user: str) -> str:
        change = {"status": {"conditions": [condition]}}
        return _refusal(site, floor.name, user, change, "--subresource=status")

    assert [user for user in WRITERS if refusal(user)] == []
    for user in (OF_JOBS, COLLECTOR, f"system:serviceaccount:{TENANT}:node-controller"):
        assert "the kubelet alone writes the status" in refusal(user), user


def test_pod_owners_are_the_garbage_collectors(site: Site, floor: Floor) -> None:
    floor.apply("job", nodes=1).until_bound()
    change: Changes = {"metadata": {"ownerReferences": None}}
    assert _refusal(site, floor.name, COLLECTOR, change) == ""
    for user in (*WRITERS[:-1], OF_JOBS, "system:node:any"):
        assert "ownerReferences: the TrainingJob" in _refusal(site, floor.name, user, change), user
