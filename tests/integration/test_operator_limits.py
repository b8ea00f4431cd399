"""The policies on the operator's own account: what its token is good for, and where."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration import manifests
from railwright_api import names
from railwright_kube import bodies
from railwright_operator.write import rendering
from railwright_operator.write.rendering import Launcher
from railwright_testbed import ControlPlane, operator_process, service_process, waiting
from railwright_testbed.api_client import ApiClient, ApiError

Json = dict[str, Any]
Change = Callable[[Json], object]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = [
    ROOT / "examples/first-job.yaml",
    *sorted((ROOT / "examples").glob("*/job.yaml")),
]
TEAM, OTHER = "team-a", "team-b"
ACCOUNT = (service_process.NAMESPACE, operator_process.SERVICE_ACCOUNT)
LAUNCHER = Launcher(image="example.com/launcher", operator_url="http://192.0.2.1:8470")
SYSTEM = ("kube-system", "kube-public", "kube-node-lease", service_process.NAMESPACE)
ALIEN = "pods of a TrainingJob alone"


@dataclass(frozen=True, slots=True)
class AccountClients:
    """Connections to one control plane with ``deploy`` in force."""

    plane: ControlPlane
    admin: ApiClient
    operator: ApiClient

    def answer(self, path: str, body: Json, *, of: ApiClient | None = None) -> str:
        """How the operator's account, or another, is refused; empty if it is not."""
        try:
            (of or self.operator).post(path + "?dryRun=All", body)
        except ApiError as error:
            return str(error)
        return ""


@pytest.fixture(scope="module")
def account_clients() -> Iterator[AccountClients]:
    """The policies in force, without an operator."""
    with (
        ControlPlane.start("limits") as plane,
        contextlib.closing(plane.client()) as admin,
    ):
        service_process.install(plane, ROOT)
        with contextlib.closing(plane.service_account_client(*ACCOUNT)) as operator:
            for namespace in (TEAM, OTHER):
                plane.kubectl("create", "namespace", namespace)
            waiting.until(
                lambda: _has_account(admin, TEAM) and _has_account(admin, OTHER),
                "the accounts of pods",
                deadline_s=30,
            )
            account_clients = AccountClients(plane, admin, operator)
            binding = bodies.binding("db-0", "u", node="n")
            # Each policy comes into force by itself.
            waiting.until(
                lambda: (
                    ALIEN in account_clients.answer(_pods(TEAM), _plain("any"))
                    and "404" not in account_clients.answer(f"{_pods(TEAM)}/db-0/binding", binding)
                ),
                "the policies in force",
                deadline_s=30,
            )
            yield account_clients


def _has_account(admin: ApiClient, namespace: str) -> bool:
    found = admin.get(f"/api/v1/namespaces/{namespace}/serviceaccounts")["items"]
    return "default" in [each["metadata"]["name"] for each in found]


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def _plain(name: str, **spec: Any) -> Json:
    """A pod of no job."""
    container = {"name": "c", "image": "i"}
    return {"metadata": {"name": name}, "spec": {"containers": [container]} | spec}


def _ours(namespace: str = TEAM, name: str = "job") -> Json:
    """The pod that the operator makes of a job."""
    job = manifests.job(name)
    job["metadata"] |= {"uid": "7c9e6679-7425-40de-944b-e07fc1f90ae7", "namespace": namespace}
    return rendering.sample_pod(job, 0, LAUNCHER)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.parent.name)
def test_examples_are_accepted(account_clients: AccountClients, example: Path) -> None:
    """Also where all of ``deploy`` is in force."""
    answer = account_clients.plane.kubectl(
        "-n", TEAM, "apply", "--dry-run=server", "-f", str(example)
    )
    assert "created (server dry run)" in answer


def test_processes_are_accepted(account_clients: AccountClients) -> None:
    processes = str(ROOT / "deploy/processes")
    answer = account_clients.plane.kubectl("apply", "--dry-run=server", "-k", processes)
    assert answer.count("created (server dry run)") == 5


def test_operator_privileged_pod_in_kube_system_denied(account_clients: AccountClients) -> None:
    """What a stolen token would be used for first."""
    container = {"name": "c", "image": "i", "securityContext": {"privileged": True}}
    volumes = [
        {"name": "host", "hostPath": {"path": "/"}},
        {"name": "secret", "secret": {"secretName": "admin"}},
    ]
    evil = _plain("evil", containers=[container], volumes=volumes)
    manifest = json.dumps({"apiVersion": "v1", "kind": "Pod"} | evil)
    user = f"--as=system:serviceaccount:{':'.join(ACCOUNT)}"
    with pytest.raises(Exception, match="creates and deletes no pods in kube-system"):
        account_clients.plane.kubectl(
            "-n", "kube-system", "create", "--dry-run=server", user, "-f", "-", stdin=manifest
        )
    assert ALIEN in account_clients.answer(_pods(TEAM), evil)


def test_operator_pod_of_a_job_is_accepted(account_clients: AccountClients) -> None:
    assert account_clients.answer(_pods(TEAM), _ours()) == ""


@pytest.mark.parametrize("namespace", SYSTEM)
def test_operator_pod_in_system_namespace_denied(
    account_clients: AccountClients, namespace: str
) -> None:
    refused = f"creates and deletes no pods in {namespace}"
    assert refused in account_clients.answer(_pods(namespace), _ours(namespace))
    refused = f"binds no pods in {namespace}"
    binding = bodies.binding("job-worker-0-1", "u", node="n")
    assert refused in account_clients.answer(f"{_pods(namespace)}/job-worker-0-1/binding", binding)


def _owner(pod: Json) -> Json:
    owner: Json = pod["metadata"]["ownerReferences"][0]
    return owner


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda pod: pod["metadata"].pop("ownerReferences"), ALIEN),
        (lambda pod: pod["metadata"].pop("labels"), ALIEN),
        (lambda pod: _owner(pod).update(controller=False), ALIEN),
        (lambda pod: _owner(pod).update(kind="Queue"), ALIEN),
        (lambda pod: _owner(pod).update(apiVersion="batch/v1"), ALIEN),
        (lambda pod: _owner(pod).update(uid="another"), ALIEN),
        (lambda pod: _owner(pod).update(name="another"), ALIEN),
        (lambda pod: pod["spec"].pop("schedulerName"), "has schedulerName railwright"),
        (lambda pod: pod["spec"].update(restartPolicy="Always"), "restartPolicy Never"),
        (lambda pod: pod["spec"].update(nodeName="node"), "and no nodeName"),
        (lambda pod: pod["spec"].pop("initContainers"), "starts with the launcher"),
        (
            lambda pod: pod["spec"]["initContainers"][0].update(command=["sh", "-c", "id"]),
            "starts with the launcher",
        ),
        (
            lambda pod: pod["spec"]["initContainers"][0].update(
                securityContext={"privileged": True}
            ),
            "starts with the launcher",
        ),
        (
            lambda pod: pod["spec"]["containers"][0].update(command=["sh", "-c", "id"]),
            "starts with the launcher",
        ),
    ],
)
def test_operator_pod_of_another_kind_denied(
    account_clients: AccountClients, change: Change, words: str
) -> None:
    pod = _ours()
    change(pod)
    assert words in account_clients.answer(_pods(TEAM), pod)


def test_operator_pod_with_injected_sidecar_is_accepted(account_clients: AccountClients) -> None:
    """A webhook of the site puts a container in front of all others."""
    pod = _ours()
    sidecar = {"name": "proxy", "image": "i", "restartPolicy": "Always"}
    pod["spec"]["initContainers"].insert(0, sidecar)
    pod["spec"]["containers"].insert(0, {"name": "beside", "image": "i"})
    assert account_clients.answer(_pods(TEAM), pod) == ""


def test_operator_deletes_pods_of_jobs_alone(account_clients: AccountClients) -> None:
    path = _pods(TEAM)
    account_clients.admin.post(path, _plain("web-0"))
    with pytest.raises(ApiError, match=ALIEN):
        account_clients.operator.delete(f"{path}/web-0?dryRun=All")
    # No job owns it: the garbage collector may be faster.
    account_clients.operator.post(path, _ours(name="gone"))
    with contextlib.suppress(ApiError):
        account_clients.operator.delete(f"{path}/gone-worker-0-1")
    waiting.until(
        lambda: not _exists(account_clients.admin, f"{path}/gone-worker-0-1"), "gone", deadline_s=60
    )


def _exists(client: ApiClient, path: str) -> bool:
    try:
        client.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


def test_operator_binding_changes_nothing_of_a_pod(account_clients: AccountClients) -> None:
    path = f"{_pods(TEAM)}/job-worker-0-1/binding"
    binding = bodies.binding("job-worker-0-1", "u", node="n")
    assert "404" in account_clients.answer(path, binding)
    for field in ("labels", "annotations"):
        marked = binding | {"metadata": binding["metadata"] | {field: {"a": "b"}}}
        assert "changes nothing of a pod that it binds" in account_clients.answer(path, marked)
    unnamed = binding | {"metadata": {"name": "job-worker-0-1"}}
    assert "binds a pod by its UID" in account_clients.answer(path, unnamed)


@pytest.mark.parametrize("name", ["web-7d4b9c6f5-x2b4z", "db-0", "node-exporter-8k2wq", "1-0"])
def test_operator_binds_no_pod_of_a_workload(account_clients: AccountClients, name: str) -> None:
    """A pod of a StatefulSet named db-1 has the form of a job's: a policy sees no more of it."""
    binding = bodies.binding(name, "u", node="n")
    refused = "the operator binds pods of TrainingJobs"
    assert refused in account_clients.answer(f"{_pods(TEAM)}/{name}/binding", binding)
    binding = bodies.binding("db-worker-0-1", "u", node="n")
    assert "404" in account_clients.answer(f"{_pods(TEAM)}/db-worker-0-1/binding", binding)


def test_operator_creates_no_jobs_and_deletes_few(account_clients: AccountClients) -> None:
    jobs = manifests.path(names.TRAINING_JOBS, TEAM)
    assert "403" in account_clients.answer(jobs, manifests.job())
    account_clients.admin.post(jobs, manifests.job("kept"))
    account_clients.admin.post(jobs, manifests.job("fleeting", spec={"ttlSecondsAfterFinished": 1}))
    with pytest.raises(ApiError, match="deletes jobs with ttlSecondsAfterFinished alone"):
        account_clients.operator.delete(f"{jobs}/kept")
    account_clients.operator.delete(f"{jobs}/fleeting")


def test_system_namespaces_refuse_jobs(account_clients: AccountClients) -> None:
    for namespace in SYSTEM:
        jobs = manifests.path(names.TRAINING_JOBS, namespace)
        answer = account_clients.answer(jobs, manifests.job(), of=account_clients.admin)
        assert f"no training in {namespace}, a namespace of the system" in answer


def test_namespaces_opt_in_where_a_site_demands_it(account_clients: AccountClients) -> None:
    plane, admin = account_clients.plane, account_clients.admin
    jobs = [manifests.path(names.TRAINING_JOBS, namespace) for namespace in (TEAM, OTHER)]
    refused = f"no training in {OTHER}: an administrator enables it with the label"
    plane.kubectl("label", "namespace", TEAM, "railwright.dev/jobs=enabled")
    plane.kubectl("apply", "-f", str(ROOT / "deploy/opt-in"))
    try:
        waiting.until(
            lambda: refused in account_clients.answer(jobs[1], manifests.job(), of=admin),
            "the policy in force",
            deadline_s=30,
        )
        assert account_clients.answer(jobs[0], manifests.job(), of=admin) == ""
        assert account_clients.answer(_pods(TEAM), _ours()) == ""
        assert refused in account_clients.answer(_pods(OTHER), _ours(OTHER))
        binding = bodies.binding("job-worker-0-1", "u", node="n")
        assert refused in account_clients.answer(f"{_pods(OTHER)}/job-worker-0-1/binding", binding)
        # Pods of others are none of its business.
        assert account_clients.answer(_pods(OTHER), _plain("web"), of=admin) == ""
    finally:
        plane.kubectl("delete", "-f", str(ROOT / "deploy/opt-in"))
        waiting.until(
            lambda: not account_clients.answer(jobs[1], manifests.job(), of=admin),
            "the policy gone",
            deadline_s=30,
        )


def test_author_must_be_allowed_to_create_pods(account_clients: AccountClients) -> None:
    plane = account_clients.plane
    jobs = manifests.path(names.TRAINING_JOBS, TEAM)
    plane.kubectl("-n", TEAM, "create", "serviceaccount", "bob")
    _grant(plane, "jobs", f"--resource=trainingjobs.{names.GROUP}")
    with contextlib.closing(plane.service_account_client(TEAM, "bob")) as bob:
        refused = f"you may not create pods in {TEAM}: ask for the right"
        waiting.until(
            lambda: refused in account_clients.answer(jobs, manifests.job(), of=bob),
            "the right to create jobs",
            deadline_s=30,
        )
        account_clients.admin.post(jobs, manifests.job("shared"))
        for spec in ({"failurePolicy": {"backoffLimit": 1}}, {"suspend": True}):
            with pytest.raises(ApiError, match="you may not create pods"):
                bob.patch(f"{jobs}/shared", {"spec": spec})
        bob.patch(f"{jobs}/shared", {"metadata": {"labels": {"team": "blue"}}})
        _grant(plane, "pods", "--resource=pods")
        waiting.until(
            lambda: not account_clients.answer(jobs, manifests.job(), of=bob),
            "the right to create pods",
            deadline_s=30,
        )


def _grant(plane: ControlPlane, name: str, resource: str) -> None:
    plane.kubectl("-n", TEAM, "create", "role", name, "--verb=create,patch", resource)
    bob = f"--serviceaccount={TEAM}:bob"
    plane.kubectl("-n", TEAM, "create", "rolebinding", name, f"--role={name}", bob)
