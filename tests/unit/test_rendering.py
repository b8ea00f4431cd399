"""The objects of an attempt: pods are the user's template with the launcher in front, and nothing
of it lost; their profile steps follow from the state of the job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fixtures import attempts, profiled_jobs, reporting
from fixtures.profiled_jobs import LARGE, jobs_with, large, recorded
from railwright_conversion import amounts
from railwright_operator.write import rendering
from railwright_operator.write.rendering import Launcher, Rendering
from railwright_scheduler.attempt.ledger import EntryRole
from railwright_scheduler.model.placement_score import PlacementScore
from railwright_scheduler.model.snapshot import Purpose

LAUNCHER = Launcher("registry.example.com/railwright:1", "http://operator:8470")
ENTRY = attempts.entry(7, job_uid="uid-of-a")
OTHERS = PlacementScore((), None, 0, measured=False, other_devices=("other",))
STEPS = "RAILWRIGHT_PROFILE_STEPS"
POINTS = {
    "checkpoints": [{"group": "worker", "attempt": 1, "step": 7}],
    "attempt": 1,
    "endedAttempt": 1,
}
TERMINATION = "RAILWRIGHT_TERMINATION_FILE"
SHARED = {"name": "railwright-shm", "mountPath": "/dev/shm"}


def job(spec: dict[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    """A TrainingJob as the API server holds it; ``spec`` and ``container`` add to its parts."""
    main = {"name": "train", "image": "user/image", "command": ["python3", "train.py"]}
    role = {"name": "worker", "template": {"spec": {"containers": [main | container]}}}
    return {
        "metadata": {"uid": "uid-of-a", "namespace": "team", "name": "a"},
        "spec": {"roles": [role]} | (spec or {}),
    }


def rendered(raw: dict[str, Any], *, profile_steps: int = 0, **changes: Any) -> dict[str, Any]:
    entry = replace(ENTRY, **changes)
    return rendering.render_pod(
        raw, entry, node_rank=1, launcher=LAUNCHER, profile_steps=profile_steps
    )


def requested(pod: dict[str, Any]) -> dict[str, int]:
    return dict(amounts.requested(amounts.asked(pod["spec"])))


def main_of(pod: dict[str, Any]) -> dict[str, Any]:
    main: dict[str, Any] = pod["spec"]["containers"][0]
    return main


def test_pod_is_named_labelled_and_owned_by_its_job() -> None:
    metadata = rendered(job())["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("a-worker-1-7", "team")
    assert metadata["labels"] == {
        "railwright.dev/job-name": "a",
        "railwright.dev/job-uid": "uid-of-a",
        "railwright.dev/attempt": "7",
        "railwright.dev/node-rank": "1",
        "railwright.dev/role": "worker",
        "batch.kubernetes.io/job-completion-index": "1",
    }
    owner = metadata["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("TrainingJob", "uid-of-a", True)


def test_only_we_bind_it_and_it_never_restarts_by_itself() -> None:
    spec = rendered(job())["spec"]
    assert spec["schedulerName"] == "railwright"
    assert spec["restartPolicy"] == "Never"
    assert "nodeName" not in spec


def test_the_launcher_runs_the_users_command_with_its_arguments() -> None:
    main = main_of(rendered(job(args=["--lr", "1e-3"])))
    launch = ["/bin/sh", "/railwright/launch", "--"]
    assert main["command"] == [*launch, "python3", "train.py", "--lr", "1e-3"]
    assert "args" not in main
    assert main["image"] == "user/image"


def test_launcher_variables_follow_the_users() -> None:
    raw = job(env=[{"name": "HF_HOME", "value": "/cache"}])
    raw["spec"]["roles"][0]["processesPerReplica"] = 8
    env = main_of(rendered(raw))["env"]
    assert env[0] == {"name": "HF_HOME", "value": "/cache"}
    reported = {each["name"]: each.get("value") for each in env}
    assert reported["RAILWRIGHT_OPERATOR_URL"] == "http://operator:8470"
    assert reported["RAILWRIGHT_JOB_UID"] == "uid-of-a"
    assert reported["RAILWRIGHT_ATTEMPT"] == "7"
    assert reported["RAILWRIGHT_NODE_RANK"] == "1"
    assert reported["RAILWRIGHT_NUM_PROCESSES"] == "8"
    assert env[-1]["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}


def test_launcher_writes_where_the_kubelet_reads() -> None:
    """A template may move the termination message."""
    container = main_of(rendered(job(terminationMessagePath="/tmp/end")))
    assert container["terminationMessagePath"] == "/tmp/end"
    assert {"name": TERMINATION, "value": "/tmp/end"} in container["env"]
    plain = main_of(rendered(job()))
    assert TERMINATION not in [each["name"] for each in plain["env"]]


def test_profile_steps_are_set_and_pre_run_saves_nothing() -> None:
    def asked(steps: int, **changes: Any) -> dict[str, str]:
        env = main_of(rendered(job(), profile_steps=steps, **changes))["env"]
        about = ("PROFILE_STEPS", "PRE_RUN")
        return {each["name"]: each["value"] for each in env if each["name"].endswith(about)}

    assert asked(0) == {}
    assert asked(5) == {"RAILWRIGHT_PROFILE_STEPS": "5"}
    both = {"RAILWRIGHT_PROFILE_STEPS": "3", "RAILWRIGHT_PRE_RUN": "true"}
    assert asked(3, purpose=Purpose.PRE_RUN) == both


def test_its_token_is_good_for_this_job_only() -> None:
    spec = rendered(job())["spec"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == "railwright-token"]
    token = volume["projected"]["sources"][0]["serviceAccountToken"]
    assert token["audience"] == rendering.audience("uid-of-a") == "railwright.dev/uid-of-a"
    main = main_of({"spec": spec})
    mounts = {each["name"]: each for each in main["volumeMounts"]}
    assert mounts["railwright-token"]["readOnly"]
    assert mounts["railwright"]["readOnly"]


def test_users_pod_template_is_not_changed_in_place() -> None:
    raw = job(volumeMounts=[{"name": "data", "mountPath": "/data"}])
    template = raw["spec"]["roles"][0]["template"]
    template["metadata"] = {"labels": {"team": "blue"}, "annotations": {"note": "x"}}
    template["spec"] |= {
        "volumes": [{"name": "data", "emptyDir": {}}],
        "initContainers": [{"name": "fetch", "image": "fetch"}],
        "terminationGracePeriodSeconds": 120,
        "nodeSelector": {"kind": "h100"},
        "enableServiceLinks": True,
    }
    template["spec"]["containers"].append({"name": "side", "image": "side"})
    before = repr(raw)
    pod = rendered(raw)
    assert pod["metadata"]["labels"]["team"] == "blue"
    assert pod["metadata"]["annotations"] == {"note": "x"}
    spec = pod["spec"]
    assert [each["name"] for each in spec["initContainers"]] == ["railwright-launcher", "fetch"]
    assert [each["name"] for each in spec["containers"]] == ["train", "side"]
    assert spec["volumes"][0]["name"] == "data"
    assert main_of(pod)["volumeMounts"][0]["mountPath"] == "/data"
    assert spec["terminationGracePeriodSeconds"] == 120
    assert {"name": "RAILWRIGHT_GRACE_SECONDS", "value": "120"} in main_of(pod)["env"]
    assert spec["nodeSelector"] == {"kind": "h100"}
    assert spec["enableServiceLinks"]
    assert repr(raw) == before


@pytest.mark.parametrize(
    ("pod", "path", "is_added"),
    [
        ({}, "/data", True),
        ({}, "/dev", True),
        ({}, "/dev/shm/cache", True),
        ({}, "/dev/shm", False),
        ({}, "/dev/shm/", False),
        ({}, "//dev/shm", False),
        ({}, "dev/shm", False),
        ({"hostIPC": True}, "/data", False),
        ({"hostIPC": False}, "/data", True),
    ],
)
def test_shared_memory_is_mounted_unless_the_template_has_some(
    pod: dict[str, Any], path: str, is_added: bool
) -> None:
    raw = job(volumeMounts=[{"name": "its", "mountPath": path}])
    raw["spec"]["roles"][0]["template"]["spec"] |= pod
    found = rendered(raw)
    volumes = [each for each in found["spec"]["volumes"] if each["name"] == "railwright-shm"]
    assert volumes == [{"name": "railwright-shm", "emptyDir": {"medium": "Memory"}}] * is_added
    mounts = main_of(found)["volumeMounts"]
    assert (SHARED in mounts) is is_added
    assert mounts[0] == {"name": "its", "mountPath": path}


def test_all_containers_of_a_template_share_memory() -> None:
    """As they do without a volume, except for one that mounts another."""
    raw = job()
    own = {"name": "own", "mountPath": "/dev/shm"}
    raw["spec"]["roles"][0]["template"]["spec"] |= {
        "initContainers": [{"name": "stage", "image": "stage"}],
    }
    raw["spec"]["roles"][0]["template"]["spec"]["containers"] += [
        {"name": "side", "image": "side"},
        {"name": "apart", "image": "apart", "volumeMounts": [own]},
    ]
    spec = rendered(raw)["spec"]
    mounts = {
        each["name"]: [
            its for its in each.get("volumeMounts", []) if its["mountPath"] == "/dev/shm"
        ]
        for each in (*spec["initContainers"], *spec["containers"])
    }
    assert mounts == {
        "railwright-launcher": [],
        "stage": [SHARED],
        "train": [SHARED],
        "side": [SHARED],
        "apart": [own],
    }


def test_template_cannot_set_reserved_labels() -> None:
    raw = job()
    raw["spec"]["roles"][0]["template"]["metadata"] = {"labels": {"railwright.dev/node-rank": "0"}}
    assert rendered(raw)["metadata"]["labels"]["railwright.dev/node-rank"] == "1"


@pytest.mark.parametrize("name", [None, "urgent"])
def test_the_jobs_priority_class_is_the_pods(name: str | None) -> None:
    spec = rendered(job({} if name is None else {"priorityClassName": name}))["spec"]
    assert spec.get("priorityClassName") == name


def test_requests_are_those_of_ranks_without_the_launcher() -> None:
    """The init container has the CPU and memory of the main container, which runs after it."""
    asked = {
        "requests": {"cpu": "4"},
        "limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": 8},
    }
    raw = job(resources=asked)
    pod = rendered(raw)
    assert main_of(pod)["resources"] == asked
    launcher = pod["spec"]["initContainers"][0]["resources"]
    assert launcher == {"requests": {"cpu": "4"}, "limits": {"cpu": "8", "memory": "64Gi"}}
    resources = requested(rendering.sample_pod(raw, 0, LAUNCHER))
    assert resources == {"cpu": 4000, "memory": 64 * 2**30, "nvidia.com/gpu": 8, "pods": 1}


def test_launcher_is_installed_within_a_quota_of_storage() -> None:
    """A quota that limits ephemeral storage refuses a pod with a container that states none."""
    storage = {"ephemeral-storage": "2Gi"}
    pod = rendered(job(resources={"limits": storage | {"nvidia.com/gpu": 8}}))
    assert pod["spec"]["initContainers"][0]["resources"]["limits"] == storage


@pytest.mark.parametrize("given", [None, 5, {"runAsUser": 7, "privileged": True}])
def test_launcher_is_installed_as_the_user_of_ranks(given: Any) -> None:
    """Without the privileges of their container."""
    (launcher,) = rendered(job(securityContext=given))["spec"]["initContainers"]
    security = launcher["securityContext"]
    assert security.get("runAsUser") == (7 if isinstance(given, dict) else None)
    assert not security.keys() & {"privileged"}
    assert security["capabilities"] == {"drop": ["ALL"]}


def test_sample_has_the_requests_of_every_pod_of_the_job() -> None:
    raw = job(resources={"limits": {"nvidia.com/gpu": 8}})
    sample, real = rendering.sample_pod(raw, 0, LAUNCHER), rendered(raw)
    assert requested(sample) == requested(real)


def test_pods_of_two_roles_have_ranks_of_their_own() -> None:
    """The second role is outside the group that trains: it saves no checkpoints, records nothing,
    and its pods are numbered from 0."""
    raw = job()
    (worker,) = raw["spec"]["roles"]
    evaluator = worker | {"name": "evaluator", "processesPerReplica": 2}
    raw["spec"]["roles"] = [worker, evaluator]
    roles = (EntryRole("worker", 2, {}), EntryRole("evaluator", 2, {}))
    entry = replace(ENTRY, roles=roles, nodes=("n0", "n1", "n0", "n1"))
    pod = rendering.render_pod(raw, entry, node_rank=3, launcher=LAUNCHER, profile_steps=5)
    assert pod["metadata"]["name"] == "a-evaluator-1-7"
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
    env = {each["name"]: each.get("value") for each in main_of(dict(pod))["env"]}
    expected = {"NODE_RANK": "3", "ROLE": "evaluator", "FIRST_RANK": "2"}
    assert {name: env[f"RAILWRIGHT_{name}"] for name in expected} == expected
    assert "RAILWRIGHT_PROFILE_STEPS" not in env
    raw["spec"]["workload"] = {"role": "evaluator"}
    pod = rendering.render_pod(raw, entry, node_rank=3, launcher=LAUNCHER, profile_steps=5)
    env = {each["name"]: each.get("value") for each in main_of(dict(pod))["env"]}
    assert env["RAILWRIGHT_PROFILE_STEPS"] == "5"


@pytest.mark.parametrize(
    ("parts", "profile", "score", "steps"),
    [
        ({}, "", None, rendering.PROFILE_STEPS),
        ({}, recorded(2), None, None),
        ({}, recorded(2), OTHERS, rendering.PROFILE_STEPS),
        ({"spec": {"profiling": {"preRun": "Never"}}}, recorded(2), OTHERS, None),
        ({"data": 2 * 256}, "", None, None),
    ],
    ids=["nothing known", "recorded", "recorded on others", "not asked for", "too large"],
)
def test_job_wanting_a_pre_run_without_profile_records_itself(
    parts: dict[str, Any], profile: str, score: PlacementScore | None, steps: int | None
) -> None:
    jobs = jobs_with(large(**parts), profile)
    cached = jobs.get(LARGE)
    assert cached is not None
    entry = attempts.entry(job_uid=LARGE, job_name="large", spec_hash=cached.spec_hash, score=score)
    pod = Rendering(jobs, launcher=reporting.LAUNCHER).pod(entry, 0)
    assert environment(pod).get(STEPS) == (None if steps is None else str(steps))


@pytest.mark.parametrize(("steps", "recorded_steps"), [(0, rendering.PROFILE_STEPS), (7, 7)])
def test_pre_run_records_and_resumes_from_nothing(steps: int, recorded_steps: int) -> None:
    profiling = {"preRun": "Auto", "steps": steps}
    jobs = jobs_with(large(spec={"profiling": profiling}, status=POINTS))
    cached = jobs.get(LARGE)
    assert cached is not None
    rendering = Rendering(jobs, launcher=reporting.LAUNCHER)
    training = attempts.entry(2, job_uid=LARGE, job_name="large", spec_hash=cached.pre_run_hash)
    pre_run = attempts.entry(
        2, job_uid=LARGE, job_name="large", spec_hash=cached.pre_run_hash, purpose=Purpose.PRE_RUN
    )
    assert rendering.pod(training, 0) is None
    asked = environment(rendering.pod(pre_run, 0))
    assert (asked[STEPS], asked["RAILWRIGHT_PRE_RUN"]) == (str(recorded_steps), "true")
    placements = [rendering.placement(entry, epoch=1) for entry in (training, pre_run)]
    found = [(each["spec"]["purpose"], each["spec"]["resume"]) for each in placements if each]
    assert found == [("Training", POINTS["checkpoints"]), ("PreRun", [])]


def environment(pod: Any) -> dict[str, Any]:
    (main,) = pod["spec"]["containers"]
    return {each["name"]: each.get("value") for each in main["env"]}


@pytest.mark.parametrize(("ranks", "recorded_steps"), [(256, 5), (257, 0), (512, 0)])
def test_attempt_too_large_to_record_records_no_steps(ranks: int, recorded_steps: int) -> None:
    """Every part of it would be refused; its pre-run is small enough."""
    cached = profiled_jobs.cached(large(data=ranks, spec={"profiling": {"steps": 5}}))
    assert rendering.profile_steps(cached, attempts.entry()) == recorded_steps
    small = attempts.entry(purpose=Purpose.PRE_RUN)
    assert rendering.profile_steps(cached, small) == 5
