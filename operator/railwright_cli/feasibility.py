"""Whether jobs would get nodes now, by the decision that the scheduler itself makes (``decide``).

``submit --dry-run`` calls it. The state is what the user may read: nodes, the pods on them, the
network, and the jobs that wait. The ledger is not read, so gangs that start in this second count
only by their pods that are bound.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from railwright_api import names, routes, schema
from railwright_api.training_job import TrainingJob
from railwright_cli.amounts import count
from railwright_cli.api_objects import (
    JobSpecView,
    JobStatusView,
    JobView,
    MetadataView,
    PriorityClassView,
)
from railwright_cli.api_server import PRIORITY_CLASSES, ApiServer
from railwright_cli.errors import AccessDeniedError
from railwright_cli.installation import ObjectView
from railwright_cli.inventory import ClusterInventory, NodeUse, read_inventory, visible
from railwright_cli.jobs import UNFINISHED, UNSCHEDULABLE, priority_of
from railwright_cli.progress import counted_progress, shown_progress
from railwright_conversion import amounts, job_roles, machines, node_healths
from railwright_scheduler.model import reasons, scale_up_domains
from railwright_scheduler.model.decisions import Admit
from railwright_scheduler.model.reasons import (
    BindingBacklog,
    LedgerFull,
    NotEvaluated,
    PriorityClassNotFound,
    Reason,
    RuntimeClassNotFound,
    Unreadable,
)
from railwright_scheduler.model.snapshot import (
    LOST_GRACE_S,
    Job,
    Node,
    Snapshot,
    Taint,
    Unavailable,
)
from railwright_scheduler.policy.decide import decide
from railwright_scheduler.usage import capped

RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"

Manifest = Mapping[str, Any]


class RuntimeClassView(Struct, frozen=True):
    """A RuntimeClass: what the API server adds to its pods."""

    metadata: MetadataView
    overhead: dict[str, Any] = {}
    scheduling: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name


class StoredJob(Struct, frozen=True):
    """A TrainingJob whose spec is decoded only if the job waits."""

    metadata: MetadataView
    spec: Raw
    status: JobStatusView = JobStatusView()


@dataclass(frozen=True, slots=True)
class JobFeasibility:
    """What would become of a job now: it starts, it waits, or it can never start here. ``text``
    says so with numbers."""

    text: str
    is_never: bool = False


@dataclass(frozen=True, slots=True)
class SchedulingSite:
    """What a decision needs beside the jobs themselves. ``ahead`` are jobs that wait; what is
    ``unread`` is not missed."""

    levels: tuple[str, ...]
    nodes: tuple[Node, ...]
    queues: tuple[str, ...]
    classes: tuple[PriorityClassView, ...] = ()
    runtime_classes: Mapping[str, RuntimeClassView] = field(default_factory=dict)
    ahead: tuple[Job, ...] = ()
    unread: frozenset[str] = frozenset()


def check(server: ApiServer, created: Sequence[Manifest]) -> tuple[list[JobFeasibility], list[str]]:
    """What would become of these jobs, as a dry run of the API server returned them, and what was
    not counted. Raises AccessDeniedError if the user may not list nodes, pods or queues."""
    site, _, notes = read_site(server)
    try:
        stored = server.items(routes.kind(names.TRAINING_JOBS), StoredJob, UNFINISHED)
    except AccessDeniedError:
        notes.append("jobs that wait were not counted: you may not list those of all namespaces")
        stored = []
    with shown_progress("deciding whether jobs fit"):
        site = replace(site, ahead=tuple(_waiting(stored, site)))
        found, is_counted = decide_jobs(created, site)
    if not is_counted:
        notes.append(f"{count(len(site.ahead), 'job')} that wait were not counted: too many")
    return found, notes


def read_site(server: ApiServer) -> tuple[SchedulingSite, ClusterInventory, list[str]]:
    """What a decision needs, without jobs that wait; its nodes with their use, in the same order;
    and what the user may not read. Raises AccessDeniedError if that is nodes, pods or queues."""
    inventory = read_inventory(server)
    if "pods" in inventory.unread:
        raise AccessDeniedError(403, "you may not list pods of the whole cluster")
    now = datetime.now(UTC)
    unread = [*inventory.unread]
    queues = server.items(routes.kind(names.QUEUES), ObjectView)
    classes = visible(server, PRIORITY_CLASSES, PriorityClassView, unread)
    runtime_classes = visible(server, RUNTIME_CLASSES, RuntimeClassView, unread)
    with counted_progress("reading what nodes have", inventory.nodes) as each:
        nodes = tuple(scheduler_node(use, inventory.levels, now) for use in each)
    site = SchedulingSite(
        levels=inventory.levels,
        nodes=nodes,
        queues=tuple(sorted(each.metadata.name for each in queues)),
        classes=tuple(classes),
        runtime_classes={each.name: each for each in runtime_classes},
        unread=frozenset(unread),
    )
    return site, inventory, [f"{name} were not counted: you may not list them" for name in unread]


def decide_jobs(
    created: Sequence[Manifest], site: SchedulingSite
) -> tuple[list[JobFeasibility], bool]:
    """What would become of these jobs, and whether the jobs ahead of them were counted: the work of
    one scheduling cycle is limited. Each suspended job is decided as if it alone were resumed."""
    held: dict[str, Reason] = {}
    jobs: dict[str, Job] = {}
    for manifest in created:
        uid = str(manifest["metadata"]["uid"])
        try:
            jobs[uid], reason = convert(manifest, site)
        except ValueError as error:
            reason = Unreadable(" ".join(str(error).split()))
        if reason is not None:
            held[uid] = reason
    suspended = {str(each["metadata"]["uid"]) for each in created if each["spec"].get("suspend")}
    # They are submitted after all that wait, also after those of this second.
    asked = [
        replace(job, submitted_s=job.submitted_s + 1)
        for uid, job in jobs.items()
        if uid not in held
    ]
    outcomes, is_counted = _decided_apart(asked, suspended, site)
    outcomes |= held
    found = []
    for uid in (str(each["metadata"]["uid"]) for each in created):
        its = _described(outcomes[uid], site.levels)
        text = f"is suspended; when resumed: {its.text}" if uid in suspended else its.text
        found.append(replace(its, text=text))
    return found, is_counted


def convert(manifest: Manifest, site: SchedulingSite) -> tuple[Job, Reason | None]:
    """A job as a value of the scheduler, and what keeps it out of the queue. The launcher, which
    the operator adds to its pods, requests nothing more. Raises ValueError."""
    desired = {name: value for name, value in manifest.items() if name != "status"}
    job = schema.read(TrainingJob, desired)
    specs = [role["template"]["spec"] for role in manifest["spec"]["roles"]]
    roles = [job_roles.convert(job, at, spec, None) for at, spec in enumerate(specs)]
    named = [str(spec.get("runtimeClassName") or "") for spec in specs]
    with_classes, refused = job_roles.with_runtime_classes(
        roles, [site.runtime_classes.get(name) for name in named]
    )
    metadata = manifest["metadata"]
    converted = Job(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        queue=job.spec.queue,
        priority=priority_of(job.spec.priority_class_name, site.classes),
        submitted_s=int(datetime.fromisoformat(metadata["creationTimestamp"]).timestamp()),
        attempt=1,
        # What ranks send decides the order of nodes, not whether the job fits.
        roles=tuple(replace(role, workload=None) for role in with_classes),
    )
    return converted, _missing(job, named, site) or refused


def _missing(job: TrainingJob, named: Iterable[str], site: SchedulingSite) -> Reason | None:
    """The class that a job names and that does not exist."""
    existing = sorted(each.metadata.name for each in site.classes)
    name = job.spec.priority_class_name
    if name and name not in existing and "priorityclasses" not in site.unread:
        return PriorityClassNotFound(name, tuple(existing))
    for each in named:
        if each and each not in site.runtime_classes and "runtimeclasses" not in site.unread:
            return RuntimeClassNotFound(each, tuple(sorted(site.runtime_classes)))
    return None


def _waiting(stored: Iterable[StoredJob], site: SchedulingSite) -> Iterable[Job]:
    """The jobs that wait for nodes and can get some."""
    for each in stored:
        view = JobView(each.metadata, JobSpecView(), each.status)
        if not view.is_waiting or each.status.reason in UNSCHEDULABLE:
            continue
        metadata, made = each.metadata, each.metadata.creation_timestamp
        if made is None:
            continue
        identity = {"uid": metadata.uid, "namespace": metadata.namespace, "name": metadata.name}
        identity["creationTimestamp"] = made.isoformat()
        spec = msgspec.json.decode(each.spec)
        manifest = {"apiVersion": names.API_VERSION, "kind": "TrainingJob"}
        try:
            job, reason = convert({**manifest, "metadata": identity, "spec": spec}, site)
        except ValueError:
            continue  # As in the operator, such a job waits outside of the queue.
        if reason is None and not spec.get("suspend"):
            yield job


def _decided_apart(
    asked: Sequence[Job], suspended: Collection[str], site: SchedulingSite
) -> tuple[dict[str, Admit | Reason], bool]:
    """The same as ``_decided``, with each suspended job alone."""
    outcomes, is_counted = _decided([job for job in asked if job.uid not in suspended], site)
    for job in asked:
        if job.uid in suspended:
            decided, is_its_counted = _decided([job], site)
            outcomes, is_counted = outcomes | decided, is_counted and is_its_counted
    return outcomes, is_counted


def _decided(asked: Sequence[Job], site: SchedulingSite) -> tuple[dict[str, Admit | Reason], bool]:
    """The decision about each of these jobs, and whether those ahead of them were counted."""
    snapshot = Snapshot(site.levels, site.nodes, site.queues, (*site.ahead, *asked))
    decisions = decide(snapshot)
    outcomes: dict[str, Admit | Reason] = {each.job_uid: each for each in decisions.admitted}
    outcomes |= {each.job_uid: each.reason for each in decisions.waiting}
    found = {job.uid: outcomes[job.uid] for job in asked}
    if any(isinstance(each, NotEvaluated) for each in found.values()) and site.ahead:
        return _decided(asked, replace(site, ahead=()))[0], False
    return found, True


def _described(outcome: Admit | Reason, levels: Sequence[str]) -> JobFeasibility:
    if isinstance(outcome, Admit):
        spans = zip(levels, outcome.spans, strict=True)
        domains = [count(number, level.rpartition("/")[2]) for level, number in spans]
        nodes = count(len(set(outcome.nodes)), "node")
        return JobFeasibility(f"fits now: {', '.join([nodes, *domains])}")
    if isinstance(outcome, BindingBacklog):
        return JobFeasibility(f"fits now: {outcome.sentence()}")
    code = reasons.code(outcome)
    is_never = code in UNSCHEDULABLE
    if isinstance(outcome, LedgerFull):
        is_never = not outcome.passes
    verdict = "can never start as it is" if is_never else "waits"
    return JobFeasibility(f"{verdict}: {code}: {outcome.sentence()}", is_never)


def scheduler_node(use: NodeUse, levels: tuple[str, ...], now: datetime) -> Node:
    """A node with what its pods use. One that became unready a short time ago is waited for."""
    node = use.node
    ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
    found = machines.node(
        node.metadata.name,
        scale_up_domains.resolve_domains(levels, use.domains or ("",) * len(levels)),
        labels=node.metadata.labels,
        taints=[Taint(each.key, each.value, each.effect) for each in node.spec.taints],
        allocatable=amounts.allocatable(node.status.allocatable)[0],
        ready=ready is not None and ready.status == "True",
        cordoned=node.spec.unschedulable,
        discovered=node_healths.parse_device(use.health.device),
    )
    since = None if ready is None else ready.last_transition_time
    is_recent = since is not None and (now - since).total_seconds() < LOST_GRACE_S
    try:
        rails = node_healths.parse_rails(use.health.rails)
    except ValueError:
        rails = None
    return replace(
        found,
        used=capped(use.used or {}),
        foreign=capped(use.foreign),
        rails=rails,
        recently_lost=is_recent and found.unavailable is Unavailable.UNREADY,
    )
