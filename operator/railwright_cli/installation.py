"""An installation as ``doctor`` reads it, without what it does not check, and what it finds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from msgspec import Struct

from railwright_cli.api_objects import MetadataView, PodView
from railwright_cli.api_server import ApiServer

LEADERS = ("railwright-operator", "railwright-controllers")
AGENTS = "railwright-agent"

Result = Literal["ok", "warning", "failed", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. ``advice`` is what to do unless the result is ok."""

    result: Result
    text: str
    advice: str = ""


class Version(Struct, frozen=True):
    """The version of the API server."""

    major: str
    minor: str

    @property
    def number(self) -> tuple[int, int]:
        """To compare. Some providers append a plus; a build of a developer may state nothing."""
        major, minor = ("".join(filter(str.isdecimal, it)) for it in (self.major, self.minor))
        return int(major or 0), int(minor or 0)


class ResourceName(Struct, frozen=True):
    """A resource that the API server has."""

    name: str


class ResourceList(Struct, frozen=True):
    """All resources of a group."""

    resources: tuple[ResourceName, ...] = ()


class ObjectView(Struct, frozen=True):
    """An object of which only the metadata matters."""

    metadata: MetadataView


class SubjectView(Struct, frozen=True):
    """Who has the rights of a binding."""

    kind: str
    name: str
    namespace: str = ""


class RoleReference(Struct, frozen=True):
    """The Role or ClusterRole of a binding."""

    kind: str
    name: str


class BindingView(Struct, rename="camel", frozen=True):
    """A RoleBinding or a ClusterRoleBinding."""

    metadata: MetadataView
    role_ref: RoleReference
    subjects: tuple[SubjectView, ...] | None = None


class LeaseSpecView(Struct, rename="camel", frozen=True):
    """Who leads, and when that was renewed."""

    holder_identity: str = ""
    renew_time: datetime | None = None
    lease_duration_seconds: int = 15


class LeaseView(Struct, frozen=True):
    """A Lease."""

    metadata: MetadataView
    spec: LeaseSpecView = LeaseSpecView()


class ReplicaStatus(Struct, rename="camel", frozen=True):
    """How many pods of a Deployment or a DaemonSet are ready."""

    ready_replicas: int = 0
    desired_number_scheduled: int = 0
    number_ready: int = 0


class ReplicaSpec(Struct, frozen=True):
    """How many pods a Deployment shall have, and their template."""

    replicas: int = 1
    template: PodView = PodView()


class WorkloadView(Struct, frozen=True):
    """A Deployment or a DaemonSet."""

    spec: ReplicaSpec = ReplicaSpec()
    status: ReplicaStatus = ReplicaStatus()


@dataclass(frozen=True, slots=True)
class CheckedSite:
    """What is checked: an API server with its time, and the namespace of the operator. ``sleep``
    takes seconds."""

    server: ApiServer
    system: str
    now: datetime
    sleep: Callable[[float], None] = time.sleep

    def find_workload(self, name: str) -> WorkloadView | None:
        """The Deployment of a process, or the DaemonSet of the agents."""
        plural = "daemonsets" if name == AGENTS else "deployments"
        path = f"/apis/apps/v1/namespaces/{self.system}/{plural}/{name}"
        return self.server.find(path, WorkloadView)
