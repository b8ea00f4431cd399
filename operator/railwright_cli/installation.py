"""The objects of an installation, as ``doctor`` reads them: without what it does not check."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from railwright_cli.api_objects import MetadataView


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


class ContainerImage(Struct, frozen=True):
    """The image of a container."""

    image: str = ""

    @property
    def tag(self) -> str:
        """Its tag, or without one its digest."""
        name, _, digest = self.image.rpartition("/")[2].partition("@")
        return name.partition(":")[2] or digest


class ContainerImages(Struct, frozen=True):
    """The containers of a pod."""

    containers: tuple[ContainerImage, ...] = ()


class PodImages(Struct, frozen=True):
    """The pods that a workload makes."""

    spec: ContainerImages = ContainerImages()


class ReplicaSpec(Struct, frozen=True):
    """How many pods a Deployment shall have, and their images."""

    replicas: int = 1
    template: PodImages = PodImages()


class WorkloadView(Struct, frozen=True):
    """A Deployment or a DaemonSet."""

    spec: ReplicaSpec = ReplicaSpec()
    status: ReplicaStatus = ReplicaStatus()


class Freshness(Struct, frozen=True):
    """When the controllers last checked the network."""

    checked: datetime | None = None


class FabricAgents(Struct, frozen=True):
    """How many agents reported, and how many of them are silent."""

    nodes: int = 0
    silent: int = 0


class FabricCounts(Struct, rename="camel", frozen=True):
    """What is wrong with the network."""

    freshness: Freshness = Freshness()
    agents: FabricAgents = FabricAgents()
    problem_count: int = 0
    conflict_count: int = 0
    domains: tuple[object, ...] = ()


class FabricChecks(Struct, frozen=True):
    """The Fabric, without its nodes."""

    status: FabricCounts = FabricCounts()
