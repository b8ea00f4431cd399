"""``railwright doctor``: what is wrong with an installation, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from importlib import metadata
from typing import Annotated

import typer

from railwright_api import names, routes
from railwright_api.kinds import DEFINITIONS
from railwright_cli import clock_checks
from railwright_cli.amounts import count
from railwright_cli.api_objects import FabricAgents, FabricView, JobView
from railwright_cli.api_server import ApiServer, valid_name
from railwright_cli.errors import EXIT_NEGATIVE, AccessDeniedError, RequestError
from railwright_cli.installation import (
    AGENTS,
    LEADERS,
    BindingView,
    CheckedSite,
    Finding,
    ObjectView,
    ResourceList,
    Result,
    RoleReference,
    Version,
)
from railwright_cli.jobs import Context, Namespace
from railwright_cli.tables import OutputOption, duration, show_rows

SYSTEM_NAMESPACE = "railwright-system"
OLDEST_VERSION = (1, 35)
FABRIC_AGE_MAX = timedelta(minutes=5)
"""The controllers check the network every minute."""

CUSTOM_KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LABEL_VERSION = "app.kubernetes.io/version"
RELEASE = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")

RBAC = "/apis/rbac.authorization.k8s.io/v1"
BINDINGS = (
    ("railwright-operator", ""),
    ("railwright-operator", "{system}"),
    ("railwright-operator", "kube-node-lease"),
    ("railwright-controllers", ""),
    ("railwright-controllers", "{system}"),
)
"""Each named as its service account and its role, with its namespace; none for one of the
cluster."""
JOBS_BINDING = "railwright-operator-jobs"
"""The rights in namespaces of jobs: of the cluster, or of each namespace. Its ClusterRole has the
same name."""
RIGHTS = "apply deploy/rights, or the Helm chart: docs/install.md"

MINOR_VERSION = re.compile(r"v?\d+\.\d+(?=\.)")


def doctor(
    namespace: Namespace = "",
    system: Annotated[
        str, typer.Option("--system-namespace", help="the namespace of the operator")
    ] = SYSTEM_NAMESPACE,
    context: Context = "",
    output: OutputOption = "table",
) -> None:
    """Check an installation, and say what to do about what is wrong.

    The exit code is 1 if a check failed. What you may not read is unknown.
    """
    server = ApiServer(context, namespace)
    site = CheckedSite(server, valid_name(system), server.time())
    rows = [
        {
            "result": found.result,
            "check": name,
            "finding": found.text,
            "whatToDo": None if found.result == "ok" else found.advice or None,
        }
        for name, check in CHECKS.items()
        for found in _checked(check, site)
    ]
    show_rows(rows, output, "nothing was checked")
    if any(row["result"] == "failed" for row in rows):
        raise typer.Exit(EXIT_NEGATIVE)


Check = Callable[[CheckedSite], Iterator[Finding]]


def _checked(check: Check, site: CheckedSite) -> Iterator[Finding]:
    try:
        yield from check(site)
    except AccessDeniedError as error:
        yield Finding("unknown", str(error), "run it as somebody who may read this")
    except RequestError as error:
        yield Finding("failed", str(error), "see the other findings")


def _version(site: CheckedSite) -> Iterator[Finding]:
    found = site.server.get("/version", Version)
    if found.number == (0, 0):
        yield Finding("unknown", "the API server does not state its version")
        return
    result: Result = "ok" if found.number >= OLDEST_VERSION else "failed"
    oldest = ".".join(map(str, OLDEST_VERSION))
    yield Finding(result, f"Kubernetes {found.major}.{found.minor}", f"upgrade to {oldest}")


def _kinds(site: CheckedSite) -> Iterator[Finding]:
    found = site.server.find(f"/apis/{names.API_VERSION}", ResourceList) or ResourceList()
    served = {each.name for each in found.resources}
    if missing := sorted(each.plural for each in DEFINITIONS if each.plural not in served):
        advice = "install the kinds: kubectl apply --server-side -f crds, or the Helm chart"
        yield Finding("failed", f"missing: {', '.join(missing)}", advice)
    else:
        yield Finding("ok", f"{len(DEFINITIONS)} kinds of {names.API_VERSION}")


def _schemas(site: CheckedSite) -> Iterator[Finding]:
    """An older schema drops the fields that a newer operator writes."""
    paths = {each.plural: f"{CUSTOM_KINDS}/{each.plural}.{names.GROUP}" for each in DEFINITIONS}
    found = _find(site, paths)
    advice = "kubectl apply --server-side -f crds, or the Helm chart"
    yield from _compare_versions(site, found, "kind", advice)


def _roles(site: CheckedSite) -> Iterator[Finding]:
    """An older role lacks the rights that only a newer operator needs."""
    roles = [f"clusterroles/{JOBS_BINDING}"]
    for name, place in BINDINGS:
        namespace = place.format(system=site.system)
        roles.append(f"namespaces/{namespace}/roles/{name}" if place else f"clusterroles/{name}")
    found = _find(site, {each: f"{RBAC}/{each}" for each in roles})
    if missing := sorted({*roles} - found.keys()):
        yield Finding("failed", f"missing: {', '.join(missing)}", RIGHTS)
    yield from _compare_versions(site, found, "role", RIGHTS)


def _find(site: CheckedSite, paths: Mapping[str, str]) -> dict[str, ObjectView]:
    """The objects that exist of those with these names and paths."""
    objects = ((name, site.server.find(path, ObjectView)) for name, path in paths.items())
    return {name: found for name, found in objects if found is not None}


def _compare_versions(
    site: CheckedSite, objects: Mapping[str, ObjectView], what: str, advice: str
) -> Iterator[Finding]:
    """The versions of objects against that of the operator, or without one that of this command."""
    tag = expected = metadata.version("railwright")
    operator = site.find_workload(LEADERS[0])
    if operator is not None and operator.spec.template.spec.containers:
        tag = operator.spec.template.spec.containers[0].tag.removeprefix("v")
        expected = tag if RELEASE.match(tag) else expected
    versions: dict[str, list[str]] = {}
    for name, each in objects.items():
        versions.setdefault(each.metadata.labels.get(LABEL_VERSION, ""), []).append(name)
    for version, its in versions.items():
        if _release(version) == _release(expected) or version == tag:
            yield Finding("ok", f"{count(len(its), what)} of version {version}")
            continue
        is_newer = _release(version) > _release(expected)
        text = f"{', '.join(its)}: version {version or 'unknown'}, the operator's is {expected}"
        result: Result = "warning" if is_newer else "failed"
        yield Finding(result, text, f"of version {expected}: {advice}")


def _release(version: str) -> tuple[int, ...]:
    """To compare; nothing for what states no version."""
    found = RELEASE.match(version)
    return tuple(map(int, found.groups())) if found else ()


def _bindings(site: CheckedSite) -> Iterator[Finding]:
    """The bindings that the processes need for what they read and write."""
    missing = []
    for service_account, place in BINDINGS:
        namespace = place.format(system=site.system)
        within = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
        found = site.server.find(f"{RBAC}/{within}/{service_account}", BindingView)
        role = RoleReference("Role" if namespace else "ClusterRole", service_account)
        if found is None or not _binds(found, role, service_account, site.system):
            missing.append(f"{within}/{service_account}")
    query = {"fieldSelector": f"metadata.name={JOBS_BINDING}"}
    jobs = [
        each
        for plural in ("clusterrolebindings", "rolebindings")
        for each in site.server.items(f"{RBAC}/{plural}", BindingView, query)
        if _binds(each, RoleReference("ClusterRole", JOBS_BINDING), LEADERS[0], site.system)
    ]
    if not jobs:
        missing.append(f"{JOBS_BINDING}, of the cluster or of a namespace")
    for each in missing:
        text = f"no binding {each} gives its role to the service account in {site.system}"
        yield Finding("failed", text, RIGHTS)
    if not missing:
        yield Finding("ok", f"{len(BINDINGS) + 1} bindings of {' and '.join(LEADERS)}")


def _binds(binding: BindingView, role: RoleReference, service_account: str, system: str) -> bool:
    return binding.role_ref == role and any(
        (each.kind, each.name, each.namespace) == ("ServiceAccount", service_account, system)
        for each in binding.subjects or ()
    )


def _pods(site: CheckedSite) -> Iterator[Finding]:
    for name in LEADERS:
        found = site.find_workload(name)
        if found is None:
            advice = "install the processes, or name their namespace with --system-namespace"
            yield Finding("failed", f"there is no Deployment {site.system}/{name}", advice)
            continue
        ready, desired = found.status.ready_replicas, found.spec.replicas
        text = f"{name}: {ready} of {count(desired, 'replica')} ready"
        advice = f"kubectl describe pods -n {site.system} -l app={name}"
        result: Result = "ok" if ready == desired > 0 else "warning" if ready else "failed"
        yield Finding(result, text, advice)
    agents = site.find_workload(AGENTS)
    if agents is None:
        advice = "install them, if hardware and links inside nodes matter: docs/install.md"
        yield Finding("warning", "there are no node agents", advice)
        return
    ready, desired = agents.status.number_ready, agents.status.desired_number_scheduled
    advice = f"kubectl get pods -n {site.system} -l app={AGENTS}"
    text = f"{AGENTS}: {ready} of {count(desired, 'node')} ready"
    yield Finding("ok" if ready == desired else "warning", text, advice)


def _images(site: CheckedSite) -> Iterator[Finding]:
    workloads = ((name, site.find_workload(name)) for name in (*LEADERS, AGENTS))
    tags = {
        name: each.spec.template.spec.containers[0].tag
        for name, each in workloads
        if each is not None and each.spec.template.spec.containers
    }
    tags["this command"] = metadata.version("railwright")
    text = ", ".join(f"{name} {tag}" for name, tag in tags.items())
    advice = "finish the upgrade: docs/install.md. Neighbouring minor versions work together"
    versions = {minor[0] for tag in tags.values() if (minor := MINOR_VERSION.match(tag))}
    yield Finding("warning" if len(versions) > 1 else "ok", text, advice)


def _fabric(site: CheckedSite) -> Iterator[Finding]:
    found = site.server.find(routes.one(names.FABRICS, names.SINGLETON), FabricView)
    if found is None or found.status.freshness.checked is None:
        advice = f"kubectl logs -n {site.system} deploy/railwright-controllers"
        yield Finding("failed", "the network was never discovered", advice)
        return
    status, advice = found.status, "kubectl describe fabric"
    passed = site.now - found.status.freshness.checked
    checked = f"the network was checked {duration(passed.total_seconds())} ago"
    yield Finding("ok" if passed < FABRIC_AGE_MAX else "failed", checked, advice)
    if not status.domains:
        text = "the network has no levels: jobs are placed without regard to racks"
        yield Finding("warning", text, "label nodes or upload topology files: docs/fabric.md")
    if status.problem_count:
        yield Finding("warning", count(status.problem_count, "problem"), advice)
    if status.conflict_count:
        yield Finding("warning", f"{count(status.conflict_count, 'conflict')} of sources", advice)
    yield from _reporting(site, status.agents)


def _reporting(site: CheckedSite, agents: FabricAgents) -> Iterator[Finding]:
    """Whether the agents that run reach the controllers."""
    advice = f"kubectl logs -n {site.system} -l app={AGENTS}"
    if agents.silent:
        text = f"{agents.silent} of {count(agents.nodes, 'node agent')} silent"
        yield Finding("warning", text, advice)
    workload = site.find_workload(AGENTS)
    if workload is not None and workload.status.number_ready > agents.nodes:
        ready = count(workload.status.number_ready, "node agent")
        text = f"{agents.nodes} of {ready} reported: does the network admit the others?"
        yield Finding("warning", text, advice)


def _rights(site: CheckedSite) -> Iterator[Finding]:
    for group, resource in ((names.GROUP, names.TRAINING_JOBS), ("", "pods")):
        place = {"namespace": site.server.namespace, "verb": "create"}
        asked = {"resourceAttributes": {**place, "group": group, "resource": resource}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = site.server.create(path, {"spec": asked})
        text = f"create {resource} in namespace {site.server.namespace}"
        if answer.get("status", {}).get("allowed"):
            yield Finding("ok", f"you may {text}")
        else:
            advice = "jobs need it: bind the role edit of this namespace to the user"
            yield Finding("warning", f"you may not {text}", advice)


def _jobs(site: CheckedSite) -> Iterator[Finding]:
    jobs = site.server.items(routes.kind(names.TRAINING_JOBS), JobView)
    broken = [each for each in jobs if each.status.reason == "InternalError"]
    for job in broken[:3]:
        name = f"{job.metadata.namespace}/{job.metadata.name}"
        text = f"{name} met a fault of the operator: {job.status.message}"
        yield Finding("failed", text, "report it as a bug")
    if not broken:
        yield Finding("ok", f"{count(len(jobs), 'job')}, none met a fault of the operator")


CHECKS: dict[str, Check] = {
    "version": _version,
    "clock": clock_checks.clock,
    "node clocks": clock_checks.node_clocks,
    "kinds": _kinds,
    "schemas": _schemas,
    "bindings": _bindings,
    "roles": _roles,
    "pods": _pods,
    "versions": _images,
    "leaders": clock_checks.leaders,
    "fabric": _fabric,
    "rights": _rights,
    "jobs": _jobs,
}
