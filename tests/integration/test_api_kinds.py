"""The kinds as the API server serves them: what is shown, what is filled in, what stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from integration import manifests
from railwright_api import kinds, names
from railwright_api.fabric import Fabric
from railwright_api.training_job import TrainingJob
from railwright_testbed import ControlPlane
from railwright_testbed.api_client import ApiClient, ApiError

ROOT = Path(__file__).resolve().parents[2]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NOW = "2026-01-02T03:04:05Z"

STATUS: dict[str, Any] = {
    "observedGeneration": 1,
    "phase": "Running",
    "reason": "Running",
    "message": "attempt 2 on node-a1,node-a2",
    "attempt": 2,
    "endedAttempt": 1,
    "restarts": 1,
    "moves": 0,
    "hangs": 0,
    "failures": 1,
    "failureTimes": [NOW],
    "startFailures": 0,
    "nodes": 2,
    "racks": 1,
    "progress": {
        "step": 420,
        "totalSteps": 1000,
        "percent": "42%",
        "loss": "2.5",
        "phase": "Training",
    },
    "checkpoints": [{"group": "worker", "attempt": 1, "step": 400}],
    "lastTermination": {
        "attempt": 1,
        "cause": "NodeLost",
        "message": "gone",
        "lostNodes": ["node-a3"],
    },
    "startedAt": NOW,
    "conditions": [
        {
            "type": "Running",
            "status": "True",
            "reason": "Running",
            "message": "attempt 2",
            "lastTransitionTime": NOW,
        }
    ],
}


@pytest.mark.parametrize("plural", [definition.plural for definition in kinds.DEFINITIONS])
def test_every_kind_is_served_without_complaint(admin: ApiClient, plural: str) -> None:
    found = admin.get(f"{CRDS}/{plural}.{names.GROUP}")
    conditions = {one["type"]: one["status"] for one in found["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions["NamesAccepted"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("tj.spec.roles", ["<[]Object>", "All pods of all roles start together or none"]),
        ("tj.spec.roles.replicas", ["<integer>", "Number of pods, each on a node of its own"]),
        ("tj.spec.activeDeadlineSeconds", ["<integer>", "Suspending the job resets the time"]),
        (
            "tj.spec.roles.template.spec.affinity",
            ["Only requiredDuringSchedulingIgnoredDuringExecution of nodeAffinity"],
        ),
        ("tj.status.progress.percent", ["for example 42%"]),
        ("queues", ["waits in the queue default"]),
        ("fabrics.spec.levels", ["the coarsest first"]),
        ("fabrics.spec.probing.mode", ["Never", "are not measured"]),
    ],
)
def test_kubectl_explain_describes_a_field(
    control_plane: ControlPlane, field: str, words: list[str]
) -> None:
    reported = " ".join(control_plane.kubectl("explain", field).split())
    assert all(word in reported for word in words), reported


def test_omitted_fields_get_their_defaults(admin: ApiClient) -> None:
    spec = manifests.accept(admin, manifests.job())["spec"]
    del spec["roles"][0]["template"]
    assert spec == {
        "queue": "default",
        "roles": [{"name": "worker", "replicas": 2, "processesPerReplica": 1}],
        "failurePolicy": {"backoffLimit": 3, "windowSeconds": 86_400},
        "startTimeoutSeconds": 600,
        "suspend": False,
        "profiling": {"steps": 0, "preRun": "Never"},
    }


def test_kubectl_get_answers_the_usual_questions(
    control_plane: ControlPlane, admin: ApiClient, namespace: str
) -> None:
    jobs = manifests.path(names.TRAINING_JOBS, namespace)
    admin.post(jobs, manifests.job())
    admin.patch(f"{jobs}/train/status", {"status": STATUS})
    heads, row = control_plane.kubectl("get", "tj", "-n", namespace).splitlines()
    columns = ["NAME", "PHASE", "QUEUE", "NODES", "RACKS", "STEP", "PROGRESS", "RESTARTS"]
    assert heads.split() == [*columns, "REASON", "AGE"]
    assert row.split()[:-1] == [
        *("train", "Running", "default", "2"),
        *("1", "420", "42%", "1", "Running"),
    ]
    wide = control_plane.kubectl("get", "tj", "-n", namespace, "-o", "wide").splitlines()[1]
    assert "attempt 2 on node-a1,node-a2" in wide
    shown = control_plane.kubectl("get", names.SCHEDULER, "-n", namespace, "-o", "name")
    assert "trainingjob.railwright.dev/train" in shown.split()


def test_kubectl_get_shows_whether_a_node_is_well(
    control_plane: ControlPlane, admin: ApiClient
) -> None:
    """Of several problems the first is shown. A node without one has nothing but its hardware, and
    without a measurement no speed."""
    miscabled = [
        {"rail": rail, "adapter": f"mlx5_{rail}", "reason": "leads to leaf-2, not leaf-1"}
        for rail in (0, 3)
    ]
    slow = ["GPU 3: 610 TFLOP/s, usually 1,000", "GPU 5: 700 TFLOP/s, usually 1,000"]
    speed = {"products": "0.61", "memory": "1"}
    sick = {
        "rails": {"order": [0, 1], "miscabled": miscabled},
        "relativeSpeed": speed,
        "slow": slow,
    }
    path = f"/apis/{names.API_VERSION}/{names.NODE_HEALTHS}"
    specs: dict[str, manifests.Manifest] = {"sick": sick, "well": {"unknown": ["links: no source"]}}
    healths = [
        manifests.cluster_object("NodeHealth", name, hardware="8 accelerators", **spec)
        for name, spec in specs.items()
    ]
    with manifests.created(admin, *((path, each) for each in healths)):
        heads, first, second = control_plane.kubectl("get", "nh", "sick", "well").splitlines()
        wide = control_plane.kubectl("get", "nh", "well", "-o", "wide").splitlines()
    assert heads.split() == ["NAME", "SPEED", "MISCABLED", "SLOW", "HARDWARE", "AGE"]
    assert " ".join(first.split()[:-1]) == f"sick 0.61 mlx5_0 {slow[0]} 8 accelerators"
    assert second.split()[:-1] == ["well", "8", "accelerators"]
    assert (wide[0].split()[-1], wide[1].endswith('["links: no source"]')) == ("UNKNOWN", True)


def test_kubectl_get_shows_queues_and_the_fabric(
    control_plane: ControlPlane, admin: ApiClient
) -> None:
    objects = {
        names.QUEUES: ("night", {"waiting": 12, "running": 3, "oldestWaitingSince": NOW}),
        names.FABRICS: (
            names.SINGLETON,
            {
                "nodes": 128,
                "summary": "1 > 8",
                "conflictCount": 1,
                "problemCount": 2,
                "slowCount": 4,
                "agents": {"nodes": 126, "silent": 5},
                "freshness": {"checked": NOW},
            },
        ),
    }
    shown = {}
    for plural, (name, status) in objects.items():
        path = f"/apis/{names.API_VERSION}/{plural}"
        kind = {names.QUEUES: "Queue", names.FABRICS: "Fabric"}[plural]
        with manifests.created(admin, (path, manifests.cluster_object(kind, name))):
            admin.patch(f"{path}/{name}/status", {"status": status})
            lines = control_plane.kubectl("get", plural, name).splitlines()
        shown[plural] = [each.split() for each in lines]
    heads, row = shown[names.QUEUES]
    assert heads == ["NAME", "WAITING", "OLDEST", "RUNNING", "AGE"]
    assert (row[:2], row[3]) == (["night", "12"], "3")
    assert row[2].endswith(("d", "h", "y"))
    heads, row = shown[names.FABRICS]
    columns = ["NAME", "NODES", "DOMAINS", "CONFLICTS", "PROBLEMS", "SLOW", "SILENT"]
    assert heads == [*columns, "CHECKED", "AGE"]
    assert " ".join(row[:-2]) == "default 128 1 > 8 1 2 4 5"


def test_jobs_are_selected_by_phase_and_queue(
    control_plane: ControlPlane, admin: ApiClient, namespace: str
) -> None:
    jobs = manifests.path(names.TRAINING_JOBS, namespace)
    queues = {"runs": "default", "waits": "default", "other": "night"}
    for name, queue in queues.items():
        admin.post(jobs, manifests.job(name, spec={"queue": queue}))
        phase = "Running" if name == "runs" else "Queued"
        admin.patch(f"{jobs}/{name}/status", {"status": STATUS | {"phase": phase}})

    def selected(selector: str) -> list[str]:
        shown = control_plane.kubectl(
            "get", "tj", "-n", namespace, "--field-selector", selector, "-o", "name"
        )
        return [line.rpartition("/")[2] for line in shown.splitlines()]

    assert selected("status.phase=Running") == ["runs"]
    assert selected("spec.queue=night") == ["other"]
    assert selected("status.phase=Queued,spec.queue=default") == ["waits"]
    items = admin.get(f"{jobs}?fieldSelector=spec.queue%21%3Ddefault")["items"]
    assert [item["metadata"]["name"] for item in items] == ["other"]


def test_a_status_is_kept_as_written_and_apart_from_the_spec(
    admin: ApiClient, namespace: str
) -> None:
    jobs = manifests.path(names.TRAINING_JOBS, namespace)
    stored = admin.post(jobs, manifests.job() | {"status": STATUS})
    assert "status" not in stored
    admin.patch(
        f"{jobs}/train/status", {"status": STATUS, "spec": {"failurePolicy": {"backoffLimit": 9}}}
    )
    found = admin.get(f"{jobs}/train")
    assert found["status"] == STATUS
    assert found["spec"]["failurePolicy"]["backoffLimit"] == 3
    assert found["metadata"]["generation"] == 1
    job = TrainingJob.model_validate(found)
    assert job.status is not None
    assert job.status.model_dump(by_alias=True, exclude_none=True, mode="json") == STATUS


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"phase": "Resizing"}, 'Unsupported value: "Resizing"'),
        ({"progress": {"step": 1, "percent": "4.2"}}, "status.progress.percent"),
        ({"checkpoints": [{"group": "worker", "attempt": 1, "step": 1}] * 257}, "at most 256"),
        (
            {"lastTermination": STATUS["lastTermination"] | {"lastLines": "x" * 4097}},
            "status.lastTermination.lastLines",
        ),
    ],
)
def test_invalid_status_is_refused(
    admin: ApiClient, namespace: str, status: dict[str, Any], words: str
) -> None:
    jobs = manifests.path(names.TRAINING_JOBS, namespace)
    admin.post(jobs, manifests.job())
    with pytest.raises(ApiError, match=words.replace('"', r'\\"')):
        admin.patch(f"{jobs}/train/status", {"status": status})


def test_fabric_is_a_singleton_without_site_labels(admin: ApiClient) -> None:
    """Only the name `default` is accepted, and `spec.levels` is empty at first."""
    fabric = manifests.cluster_object("Fabric")
    del fabric["spec"]
    path = manifests.path(names.FABRICS) + manifests.ASK
    stored = Fabric.model_validate(admin.post(path, fabric))
    assert stored.spec.levels == ()
    assert stored.spec.probing.mode == "WhenUnknown"
    with pytest.raises(ApiError, match=r"other.* is not .*default.*a cluster has one Fabric"):
        admin.post(path, manifests.cluster_object("Fabric", "other"))
    for levels, words in (
        (["a/b"] * 2, "Duplicate value"),
        (["not a label"], "should match"),
        ([f"l{number}" for number in range(9)], "at most 8"),
    ):
        with pytest.raises(ApiError, match=words):
            admin.post(path, manifests.cluster_object("Fabric", levels=levels))
    for probing, words in (
        ({"mode": "Sometimes"}, '"Never", "WhenUnknown", "Always"'.replace('"', r'\\"')),
        ({"maxAgeHours": 0}, "greater than or equal to 1"),
        ({"maxAgeHours": 8761}, "less than or equal to 8760"),
        ({"uplinks": "yes"}, "must be of type boolean"),
    ):
        with pytest.raises(ApiError, match=words):
            admin.post(path, manifests.cluster_object("Fabric", probing=probing))


def test_queue_name_must_be_usable_in_jobs(admin: ApiClient) -> None:
    path = manifests.path(names.QUEUES) + manifests.ASK
    admin.post(path, manifests.cluster_object("Queue", "research", description="everyone"))
    with pytest.raises(ApiError, match="has 64 characters, at most 63: jobs name their queue"):
        admin.post(path, manifests.cluster_object("Queue", "q" * 64))


def test_a_placement_never_changes(admin: ApiClient, namespace: str) -> None:
    placements = manifests.path(names.PLACEMENTS, namespace)
    spec: dict[str, Any] = {
        "jobUID": "u",
        "attempt": 1,
        "purpose": "Training",
        "epoch": 1,
        "nodes": ["n1", "n2"],
        "spans": [{"level": "railwright.dev/rack", "domains": 1}],
        "resume": [],
        "reason": "first start",
    }
    placement = manifests.cluster_object("Placement", "train-1", **spec)
    assert admin.post(placements, placement)["spec"] == spec
    for change in ({"nodes": ["n2", "n1"]}, {"epoch": 2}, {"spans": None}):
        with pytest.raises(ApiError, match="spec never changes"):
            admin.patch(f"{placements}/train-1", {"spec": change})


def test_the_ledger_is_one_and_a_stale_write_of_it_fails(admin: ApiClient) -> None:
    ledgers = manifests.path(names.LEDGERS)
    cause = {"code": "RankFailed", "message": "rank 3 exited with 1", "lastLines": "x", "rank": 3}
    entry = {
        "jobUID": "u",
        "namespace": "default",
        "jobName": "train",
        "attempt": 1,
        "state": "Aborting",
        "nodes": ["n1"],
        "roles": [
            {"name": "worker", "replicas": 1, "perPod": {"memory": 2**62, "cpu": 8000}},
        ],
        "spans": [{"level": "railwright.dev/rack", "domains": 1}],
        "specHash": "7d8a",
        "cause": cause,
    }
    spec: dict[str, Any] = {"epoch": 1, "incarnation": "i", "holder": "h", "entries": [entry]}
    with pytest.raises(ApiError, match="a cluster has one Ledger"):
        admin.post(ledgers, manifests.cluster_object("Ledger", "other", **spec))
    first = admin.post(ledgers, manifests.cluster_object("Ledger", **spec))
    assert first["spec"] == spec
    first["spec"]["epoch"] = 2
    admin.request("PUT", f"{ledgers}/default", body=first)
    with pytest.raises(ApiError) as caught:
        admin.request("PUT", f"{ledgers}/default", body=first)
    assert caught.value.status == 409
    admin.delete(f"{ledgers}/default")


def test_the_first_job_of_the_examples_is_taken(control_plane: ControlPlane) -> None:
    example = ROOT / "examples/first-job.yaml"
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 12
    answer = control_plane.kubectl("create", "--dry-run=server", "-f", str(example))
    assert "trainingjob.railwright.dev/first created" in answer
