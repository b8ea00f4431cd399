"""Render the API objects of a ledger entry: its Placement, and its pods with the launcher in front.

``Rendering`` looks up the job of an entry; the functions below it are pure.

The launcher comes by an init container that copies the ``railwright`` package and an interpreter
into an empty volume, so the user's image needs nothing but a shell. It becomes the command of the
first container; the user's command becomes its arguments, and one process of it runs for each rank.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from railwright_api import names
from railwright_conversion import checkpoints
from railwright_kube import bodies
from railwright_operator.watch.jobs import CachedJob, Jobs
from railwright_operator.write import placement_score
from railwright_scheduler.attempt import resume_points
from railwright_scheduler.attempt.ledger import Entry, EntryRole, EntryState
from railwright_scheduler.model.rank_layout import RankLayout, number_ranks
from railwright_scheduler.model.snapshot import Purpose, Role
from railwright_scheduler.pre_run import RANKS_MAX

LAUNCHER_DIRECTORY = "/railwright"
TOKEN_DIRECTORY = "/var/run/secrets/railwright.dev"  # noqa: S105 - a path, not a secret
TOKEN_SECONDS = 3600
SHARED_MEMORY, SHARED_VOLUME = "/dev/shm", "railwright-shm"  # noqa: S108 - where libraries look
GRACE_SECONDS = 30
INSTALL_RESOURCES = ("cpu", "memory", "ephemeral-storage")
SECURITY_SHARED = ("runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile")

PROFILE_STEPS = 3
"""The number of recorded steps if the job does not state it."""

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Launcher:
    """The settings of all pods: the image with the launcher, the address of the operator, and
    whose certificates launchers accept there, as PEM, with an https URL."""

    image: str
    operator_url: str
    authorities: Callable[[], str] = str


class Rendering:
    """Renders objects from the current version of their job."""

    def __init__(self, jobs: Jobs, *, launcher: Launcher) -> None:
        self._jobs = jobs
        self._launcher = launcher

    def pod(self, entry: Entry, node_rank: int) -> Manifest | None:
        """The pod with this number; None when the job was deleted, or its spec changed."""
        cached = self._jobs.get(entry.job_uid)
        if cached is None or cached.too_large:
            return None
        is_pre_run = entry.purpose is Purpose.PRE_RUN
        if entry.spec_hash != (cached.pre_run_hash if is_pre_run else cached.spec_hash):
            return None
        return render_pod(
            cached.object.whole,
            entry,
            node_rank=node_rank,
            launcher=self._launcher,
            profile_steps=profile_steps(cached, entry),
        )

    def placement(self, entry: Entry, *, epoch: int) -> Manifest | None:
        """The attempt's Placement; None when the job was deleted."""
        cached = self._jobs.get(entry.job_uid)
        if cached is None:
            return None
        is_pre_run = entry.purpose is Purpose.PRE_RUN
        points = () if is_pre_run else cached.record.checkpoints
        resume = resume_points.readable(points, entry.attempt)
        last_termination = cached.record.last_termination
        reason = (
            f"after {last_termination.code}: {last_termination.message}"
            if last_termination
            else "first start"
        )
        spec: dict[str, Any] = {
            "jobUID": entry.job_uid,
            "attempt": entry.attempt,
            "purpose": entry.purpose.value,
            "epoch": epoch,
            "nodes": list(entry.nodes),
            "roles": [{"name": role.name, "replicas": role.replicas} for role in entry.roles],
            "spans": [{"level": level, "domains": count} for level, count in entry.spans],
            "resume": [checkpoints.render(point) for point in resume],
            "topologyHash": entry.topology_hash,
            "reason": reason,
        }
        if entry.score is not None:
            spec["mapping"] = placement_score.render(entry.score)
        name = names.placement_name(entry.job_name, entry.attempt)
        metadata = _attempt_metadata(entry, name)
        return bodies.manifest(names.API_VERSION, "Placement", metadata, spec)


def profile_steps(cached: CachedJob, entry: Entry) -> int:
    """The number of steps that ranks of the attempt record: that of the job's spec. If the spec has
    none: a few in a pre-run, and in a job with pre-runs that starts without a profile, or with one
    of other devices. More ranks than can be recorded record nothing; a pre-run has fewer."""
    spec, workload = cached.job.spec, cached.workload
    profiling, is_pre_run = spec.profiling, entry.purpose is Purpose.PRE_RUN
    if spec.training_role.ranks > RANKS_MAX and not is_pre_run:
        return 0
    if profiling.steps or profiling.pre_run == "Never":
        return profiling.steps
    if is_pre_run:
        return PROFILE_STEPS
    if workload is None or spec.workload is None or spec.workload.profile:
        return 0
    # An opaque workload has no score without a profile of its devices.
    is_aside = entry.score.other_devices != () if entry.score else workload.model is None
    return PROFILE_STEPS if workload.profile is None or is_aside else 0


def audience(job_uid: str) -> str:
    """The audience of a job's tokens, valid for no other job and no other service."""
    return f"{names.GROUP}/{job_uid}"


def render_pod(
    job: Mapping[str, Any],
    entry: Entry,
    *,
    node_rank: int,
    launcher: Launcher,
    profile_steps: int = 0,
) -> Manifest:
    """Render the pod with this number in the gang. It shares parts with ``job``, the TrainingJob
    from the API server, and changes none of them. Its ranks record ``profile_steps`` steps."""
    role, index = entry.place(node_rank)
    raw = {each["name"]: each for each in job["spec"]["roles"]}
    template = raw[role.name]["template"]
    spec = dict(template["spec"])
    spec.update(schedulerName=names.SCHEDULER, restartPolicy="Never")
    spec.setdefault("enableServiceLinks", False)
    spec.setdefault("terminationGracePeriodSeconds", GRACE_SECONDS)
    if "priorityClassName" in job["spec"]:
        spec["priorityClassName"] = job["spec"]["priorityClassName"]
    _share_memory(spec)
    spec["volumes"] = [*spec.get("volumes", []), *_volumes(entry.job_uid)]
    spec["initContainers"] = [
        _install(spec["containers"][0], launcher),
        *spec.get("initContainers", []),
    ]
    spec["containers"] = list(spec["containers"])
    training = job["spec"].get("workload", {}).get("role", "")
    layout = number_ranks([_role(raw[each.name], each) for each in entry.roles], training=training)
    environment = _environment(
        layout, entry, launcher, node_rank=node_rank, profile_steps=profile_steps
    )
    grace = {
        "name": "RAILWRIGHT_GRACE_SECONDS",
        "value": str(spec["terminationGracePeriodSeconds"]),
    }
    spec["containers"][0] = _main(spec["containers"][0], [grace, *environment])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(template.get("metadata", {}), entry, node_rank, role.name, index),
        "spec": spec,
    }


def sample_pod(job: Mapping[str, Any], role: int, launcher: Launcher) -> Manifest:
    """Render the first pod of the role with this index, to compute its requests."""
    metadata, raw = job["metadata"], job["spec"]["roles"][role]
    entry = Entry(
        job_uid=metadata["uid"],
        namespace=metadata["namespace"],
        job_name=metadata["name"],
        attempt=1,
        state=EntryState.COMMITTING,
        nodes=("",),
        roles=(EntryRole(raw["name"], 1, {}),),
    )
    return render_pod(job, entry, node_rank=0, launcher=launcher)


def _metadata(
    template: Mapping[str, Any], entry: Entry, node_rank: int, role: str, index: int
) -> Manifest:
    name = names.pod_name(entry.job_name, role, index, entry.attempt)
    metadata = _attempt_metadata(entry, name)
    places = {
        names.LABEL_NODE_RANK: str(node_rank),
        names.LABEL_ROLE: role,
        names.LABEL_COMPLETION_INDEX: str(index),
    }
    labels = {**template.get("labels", {}), **metadata["labels"], **places}
    return metadata | {"labels": labels, "annotations": dict(template.get("annotations", {}))}


def _attempt_metadata(entry: Entry, name: str) -> Manifest:
    """The metadata of an object of one attempt, which is deleted with the job."""
    return {
        "name": name,
        "namespace": entry.namespace,
        "labels": {
            names.LABEL_JOB_NAME: entry.job_name,
            names.LABEL_JOB_UID: entry.job_uid,
            names.LABEL_ATTEMPT: str(entry.attempt),
        },
        "ownerReferences": [owner_reference(entry.job_name, uid=entry.job_uid)],
    }


def owner_reference(job_name: str, *, uid: str) -> Manifest:
    """The owner reference of a job's pods and Placements."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "TrainingJob",
        "name": job_name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _volumes(job_uid: str) -> list[Manifest]:
    token = {"audience": audience(job_uid), "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    return [
        {"name": "railwright", "emptyDir": {}},
        {"name": "railwright-token", "projected": {"sources": [{"serviceAccountToken": token}]}},
    ]


def _share_memory(spec: Manifest) -> None:
    """Add a volume in memory at ``/dev/shm`` of all containers that mount nothing there: a runtime
    has 64 MiB for a pod, which is too little for NCCL between the GPUs of a node, and for data
    loaders. What is stored in it counts as memory of the container. A pod that has the shared
    memory of its host keeps that."""
    if spec.get("hostIPC"):
        return
    kinds: set[str] = {"containers", "initContainers"} & spec.keys()
    sharing = {kind: [_sharing_memory(each) for each in spec[kind]] for kind in kinds}
    if any(sharing[kind] != spec[kind] for kind in kinds):
        shared = {"name": SHARED_VOLUME, "emptyDir": {"medium": "Memory"}}
        spec["volumes"] = [*spec.get("volumes", []), shared]
    spec.update(sharing)


def _sharing_memory(container: Manifest) -> Manifest:
    mounts = container.get("volumeMounts", [])
    paths = {posixpath.normpath(f"/{each['mountPath'].lstrip('/')}") for each in mounts}
    if SHARED_MEMORY in paths:
        return container
    return container | {
        "volumeMounts": [*mounts, {"name": SHARED_VOLUME, "mountPath": SHARED_MEMORY}]
    }


def _install(main: Mapping[str, Any], launcher: Launcher) -> Manifest:
    """The init container. It has the CPU, memory and storage of the main container: it runs before
    that, so the pod needs no more, and quotas that require requests in every container are
    satisfied. It has its user and its seccomp profile as well, which Pod Security may require of
    every container."""
    security = main.get("securityContext")
    security = security if isinstance(security, dict) else {}
    resources = {
        kind: {name: amounts[name] for name in INSTALL_RESOURCES if name in amounts}
        for kind, amounts in main.get("resources", {}).items()
        if kind in ("requests", "limits")
    }
    return {
        "name": "railwright-launcher",
        "image": launcher.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-m", "railwright.install", LAUNCHER_DIRECTORY],
        "volumeMounts": [{"name": "railwright", "mountPath": LAUNCHER_DIRECTORY}],
        "resources": resources,
        "securityContext": {
            **{name: security[name] for name in SECURITY_SHARED if name in security},
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }


def _main(container: Mapping[str, Any], environment: list[Manifest]) -> Manifest:
    main = dict(container)
    command = [*main["command"], *main.pop("args", [])]
    main["command"] = ["/bin/sh", f"{LAUNCHER_DIRECTORY}/launch", "--", *command]
    main["env"] = [*main.get("env", []), *environment]
    if path := main.get("terminationMessagePath"):
        main["env"].append({"name": "RAILWRIGHT_TERMINATION_FILE", "value": path})
    main["volumeMounts"] = [
        *main.get("volumeMounts", []),
        {"name": "railwright", "mountPath": LAUNCHER_DIRECTORY, "readOnly": True},
        {"name": "railwright-token", "mountPath": TOKEN_DIRECTORY, "readOnly": True},
    ]
    return main


def _role(raw: Mapping[str, Any], its: EntryRole) -> Role:
    """The role by which its ranks are numbered."""
    ranks, group = raw.get("processesPerReplica", 1), raw.get("group", its.name)
    return Role(its.replicas, its.per_pod, its.name, group, ranks_per_pod=ranks)


def _environment(
    layout: RankLayout, entry: Entry, launcher: Launcher, *, node_rank: int, profile_steps: int
) -> list[Manifest]:
    role = layout.of(node_rank)
    values = {
        "RAILWRIGHT_OPERATOR_URL": launcher.operator_url,
        "RAILWRIGHT_JOB_UID": entry.job_uid,
        "RAILWRIGHT_JOB_NAME": entry.job_name,
        "RAILWRIGHT_ATTEMPT": str(entry.attempt),
        "RAILWRIGHT_NODE_RANK": str(node_rank),
        "RAILWRIGHT_ROLE": role.role,
        "RAILWRIGHT_FIRST_RANK": str(role.ranks_of(node_rank).start),
        "RAILWRIGHT_NUM_PROCESSES": str(role.ranks_per_pod),
        "RAILWRIGHT_TOKEN_FILE": f"{TOKEN_DIRECTORY}/token",
    }
    if authorities := launcher.authorities():
        values["RAILWRIGHT_OPERATOR_AUTHORITIES"] = authorities
    if profile_steps and role == layout.training and role.launchers == len(role.pods):
        values["RAILWRIGHT_PROFILE_STEPS"] = str(profile_steps)
    if entry.purpose is Purpose.PRE_RUN:
        values["RAILWRIGHT_PRE_RUN"] = "true"
    fixed: list[Manifest] = [{"name": name, "value": value} for name, value in values.items()]
    pod_ip = {"fieldRef": {"fieldPath": "status.podIP"}}
    return [*fixed, {"name": "RAILWRIGHT_POD_IP", "valueFrom": pod_ip}]
