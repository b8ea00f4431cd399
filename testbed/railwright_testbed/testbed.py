"""A control plane and a handful of real nodes: the public class of this package."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from railwright_testbed import (
    binaries,
    faults,
    gpus,
    guardian,
    images,
    network,
    node,
    requirements,
    services,
    state_folder,
    sweeping,
    waiting,
)
from railwright_testbed.api_client import Json
from railwright_testbed.control_plane import ControlPlane, ControlPlaneOptions
from railwright_testbed.errors import TestbedError
from railwright_testbed.network import Subnets
from railwright_testbed.node import RealNode
from railwright_testbed.processes import Process
from railwright_testbed.state_folder import StateFolder

DEFAULT_RACKS = {"rack-a": 2, "rack-b": 2, "rack-c": 1}
SYSTEM_NODE = "system"
_RACKS_IN_BLOCK = 2
_READY_DEADLINE_S = 120.0
_SOCKET_PATH_MAX = 107
_PROCESSORS = len(os.sched_getaffinity(0))
_KUBELET_SOCKET = "/{name}-123456/nodes/{node}/kubelet/pod-resources/1234567890"


class Testbed:
    """One running testbed. `start` it, use it as a context manager or `stop` it.

    ``nodes`` are those that jobs run on. ``system`` has neither rack nor GPUs: it is there for the
    product's own pods, as nodes that fail in a test must not be theirs.
    """

    # pytest would take it for a test otherwise.
    __test__ = False

    def __init__(self, folder: StateFolder, nodes: Sequence[RealNode], subnets: Subnets) -> None:
        self._folder = folder
        self._archive = faults.image_archive(folder)
        self._guardian: Process | None = None
        self._processes: dict[str, tuple[Process, ...]] = {}
        self._of_cluster: list[Process] = []
        self._every: list[RealNode] = list(nodes)
        self.nodes: list[RealNode] = [each for each in nodes if not each.is_system]
        (self.system,) = (each for each in nodes if each.is_system)
        self.image: str = images.POD_IMAGE
        self.second_image: str = images.SECOND_POD_IMAGE
        self.host_address: str = str(subnets.host)
        self.shared_directory: Path = folder.path / "shared"
        self.control_plane: ControlPlane = ControlPlane(
            folder,
            ControlPlaneOptions(
                address=self.host_address,
                service_subnet=str(subnets.services),
                node_names=tuple(n.name for n in nodes),
            ),
        )

    def __repr__(self) -> str:
        return f"Testbed({self._folder.path.name}, {len(self.nodes)} nodes, {self.control_plane!r})"

    @classmethod
    def start(
        cls,
        name: str = "demo",
        racks: Mapping[str, int] | None = None,
        *,
        gpus_per_node: int = 8,
    ) -> Testbed:
        """A testbed of its own, guarded: it is gone when this Python process is gone."""
        requirements.install_packages()
        plan = [*_plan(DEFAULT_RACKS if racks is None else racks), (SYSTEM_NODE, "", "")]
        _refuse_unfit_state(name, [node for node, _, _ in plan])
        binaries.find([*binaries.CONTROL_PLANE, *binaries.REAL_NODES])
        sweeping.sweep_crashed()
        folder = state_folder.new(name)
        bed: Testbed | None = None
        try:
            folder.make()
            watch = guardian.start(folder)
            subnets = network.create(folder.testbed_id, [node for node, _, _ in plan])
            nodes = [
                _real_node(folder, subnets, index=index, place=place, gpu_count=gpus_per_node)
                for index, place in enumerate(plan)
            ]
            bed = cls(folder, nodes, subnets)
            bed._guardian = watch
            bed._start_all()
        except BaseException:
            if bed is not None:
                bed.stop()
            sweeping.sweep(folder)
            raise
        return bed

    def stop(self) -> None:
        """End everything and remove every trace; a second call does nothing."""
        self.control_plane.stop()
        for processes in self._processes.values():
            for process in reversed(processes):
                process.end()
        self._processes.clear()
        for process in self._of_cluster:
            process.end()
        if self._guardian is not None:
            sweeping.sweep(self._folder)
            self._guardian.end()
            self._guardian = None

    def detach(self) -> None:
        """Leave it running when this Python process ends; `down` takes it away."""
        self._folder.detach()
        if self._guardian is not None:
            self._guardian.end()
            self._guardian = None
        self.control_plane.release()
        for process in (part for parts in self._processes.values() for part in parts):
            process.release()
        for process in self._of_cluster:
            process.release()

    def __enter__(self) -> Testbed:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def kill_node(self, name: str) -> None:
        """Power loss: silence first, then everything on it is dead."""
        faults.die_silently(self.node(name))
        for process in self._processes.pop(name, ()):
            process.end()

    def partition_node(self, name: str) -> None:
        """Cut off from everybody, and alive."""
        faults.cut_off(self.node(name))

    def restore_node(self, name: str) -> None:
        """Plug it in; if it was dead, start it again and wait until it is Ready."""
        restored = self.node(name)
        faults.reconnect(restored)
        if name not in self._processes:
            self._start_nodes([restored])
        self._wait_ready([restored])

    def load_images(self, archive: Path, nodes: Iterable[RealNode]) -> None:
        """Give these nodes the images of an archive, in place of a registry."""

        def load(real: RealNode) -> None:
            node.import_images(real, self._processes[real.name][0], archive=archive)

        with concurrent.futures.ThreadPoolExecutor(_PROCESSORS) as pool:
            list(pool.map(load, nodes))

    def node(self, name: str) -> RealNode:
        for candidate in self._every:
            if candidate.name == name:
                return candidate
        names = ", ".join(candidate.name for candidate in self._every)
        raise TestbedError(f"there is no node {name!r}; there are {names}")

    def _start_all(self) -> None:
        self.shared_directory.mkdir()
        faults.remember(self._folder, self._every)
        images.write_archive(self._archive)
        self.control_plane.start_all()
        with contextlib.closing(self.control_plane.client()) as client:
            gpus.install_policy(client)
        kubeconfig = self.control_plane.part_kubeconfig
        dns = services.start_dns(
            self._folder, address=self.host_address, kubeconfig=kubeconfig("coredns")
        )
        scheduler = services.start_scheduler(self._folder, kubeconfig=kubeconfig("kube-scheduler"))
        self._of_cluster = [dns, scheduler]
        self._start_nodes(self._every)
        self._wait_ready(self._every)
        # A kubelet may not set it.
        self.control_plane.kubectl("label", "node", self.system.name, f"{node.CONTROL_PLANE}=")

    def _start_nodes(self, nodes: Sequence[RealNode]) -> None:
        # All of one kind first, then the waiting: the nodes come up beside each other.
        runtimes = [(real, node.start_containerd(real, self._folder)) for real in nodes]
        for real, containerd in runtimes:
            node.import_images(real, containerd, archive=self._archive)
            kubeconfig = self.control_plane.node_kubeconfig(real.name)
            kubelet = node.start_kubelet(
                real, self._folder, containerd=containerd, kubeconfig=kubeconfig
            )
            proxy = services.start_proxy(
                real,
                self._folder,
                containerd=containerd,
                kubeconfig=self.control_plane.part_kubeconfig("kube-proxy"),
            )
            self._processes[real.name] = (containerd, kubelet, proxy)

    def _wait_ready(self, nodes: Sequence[RealNode]) -> None:
        with contextlib.closing(self.control_plane.client()) as client:

            def waited_for() -> list[RealNode]:
                for process in (part for n in nodes for part in self._processes[n.name]):
                    if not process.alive:
                        raise TestbedError(f"a node ended at its start: {process.evidence()}")
                items = client.get("/api/v1/nodes")["items"]
                found = {item["metadata"]["name"]: item for item in items}
                return [
                    n
                    for n in nodes
                    if not _is_ready(found.get(n.name), gpu_count=n.gpus)
                    or not services.is_proxied(n)
                ]

            waiting.until(
                lambda: not waited_for(),
                f"nodes {', '.join(n.name for n in nodes)} Ready with their GPUs",
                deadline_s=_READY_DEADLINE_S,
                evidence=lambda: self._evidence(waited_for()),
            )

    def _evidence(self, nodes: Sequence[RealNode]) -> str:
        logs = [process.evidence() for n in nodes for process in self._processes.get(n.name, ())]
        return "\n".join([f"not ready: {', '.join(n.name for n in nodes)}", *logs])


def _refuse_unfit_state(name: str, nodes: Sequence[str]) -> None:
    longest = max(len(_KUBELET_SOCKET.format(name=name, node=node)) for node in nodes)
    if len(str(state_folder.root())) + longest > _SOCKET_PATH_MAX:
        raise TestbedError(
            f"the state of testbeds is in {state_folder.root()}; kubelets make sockets there, "
            f"whose paths may have {_SOCKET_PATH_MAX} characters: set RAILWRIGHT_TESTBED_STATE to "
            f"a folder with at most {_SOCKET_PATH_MAX - longest} characters in its path"
        )
    # Each node has a /var/lib and a /var/log of its own, which would hide its state from it.
    for hidden in (Path("/var/lib"), Path("/var/log")):
        if state_folder.root().is_relative_to(hidden):
            raise TestbedError(
                f"the state of testbeds is in {state_folder.root()}; with real nodes it cannot be "
                f"below {hidden}: set RAILWRIGHT_TESTBED_STATE to another folder"
            )


def _plan(racks: Mapping[str, int]) -> list[tuple[str, str, str]]:
    """Name, rack and block of each node: `rack-a` with two nodes has node-a1 and node-a2."""
    return [
        (
            f"node-{rack.rpartition('-')[2]}{number}",
            rack,
            f"block-{position // _RACKS_IN_BLOCK + 1}",
        )
        for position, (rack, count) in enumerate(racks.items())
        for number in range(1, count + 1)
    ]


def _real_node(
    folder: StateFolder,
    subnets: Subnets,
    *,
    index: int,
    place: tuple[str, str, str],
    gpu_count: int,
) -> RealNode:
    name, rack, block = place
    return RealNode(
        name=name,
        index=index,
        rack=rack,
        block=block,
        gpus=gpu_count if rack else 0,
        address=str(subnets.node_address(index)),
        bridge=str(subnets.host),
        pod_subnet=str(subnets.pods_of(index)),
        testbed_id=folder.testbed_id,
        directory=folder.path / "nodes" / name,
    )


def _is_ready(found: Json | None, *, gpu_count: int) -> bool:
    if found is None:
        return False
    conditions = {c["type"]: c["status"] for c in found["status"].get("conditions", [])}
    taints = {taint["key"] for taint in found["spec"].get("taints", [])}
    tainted = any(key.startswith("node.kubernetes.io/") for key in taints)
    return conditions.get("Ready") == "True" and not tainted and gpus.shown_by(found) == gpu_count
