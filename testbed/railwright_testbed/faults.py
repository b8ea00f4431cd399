"""What can happen to a real node: it dies silently, it is cut off, it comes back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from railwright_testbed import kernel_objects, network, node, processes, services
from railwright_testbed.errors import TestbedError
from railwright_testbed.node import RealNode
from railwright_testbed.state_folder import StateFolder

HELP = {
    "kill-node": "power loss: the cable goes first, then everything on it is dead",
    "partition-node": "pull the cable; the node goes on",
    "restore-node": "plug the cable in, and start the node if it was dead",
}
_NODES_FILE = "nodes.json"


def die_silently(target: RealNode) -> None:
    """Power loss. The cable goes first: a killed process would still send resets to its peers."""
    network.set_link(target.testbed_id, target.index, up=False)
    kernel_objects.kill_cgroup(target.cgroup)


def cut_off(target: RealNode) -> None:
    """A partition: the node goes on, without any connection."""
    network.set_link(target.testbed_id, target.index, up=False)


def reconnect(target: RealNode) -> None:
    network.set_link(target.testbed_id, target.index, up=True)


def remember(folder: StateFolder, nodes: Sequence[RealNode]) -> None:
    """Write down what the nodes are, so that faults can be caused from the command line."""
    described = [node.to_json(real) for real in nodes]
    (folder.path / _NODES_FILE).write_text(json.dumps(described, indent=1))


def by_name(folder: StateFolder, *, node_name: str, fault: str) -> None:
    """Cause a fault on a node of a testbed that another process started."""
    described = json.loads((folder.path / _NODES_FILE).read_text())
    nodes = {real.name: real for real in map(node.from_json, described)}
    if node_name not in nodes:
        raise TestbedError(f"there is no node {node_name!r}; there are {', '.join(sorted(nodes))}")
    target = nodes[node_name]
    match fault:
        case "kill-node":
            die_silently(target)
        case "partition-node":
            cut_off(target)
        case "restore-node":
            reconnect(target)
            alive = {
                r.name for r in processes.read_records(folder.records) if processes.is_alive(r)
            }
            if f"kubelet-{node_name}" not in alive:
                _start_again(target, folder)
        case _:
            raise TestbedError(f"there is no fault {fault!r}; there are {', '.join(HELP)}")


def _start_again(target: RealNode, folder: StateFolder) -> None:
    containerd = node.start_containerd(target, folder)
    node.import_images(target, containerd, archive=image_archive(folder))
    kubelet = node.start_kubelet(
        target,
        folder,
        containerd=containerd,
        kubeconfig=folder.path / "control-plane" / "nodes" / f"{target.name}.kubeconfig",
    )
    proxy = services.start_proxy(
        target,
        folder,
        containerd=containerd,
        kubeconfig=folder.path / "control-plane" / "kube-proxy.kubeconfig",
    )
    for process in (containerd, kubelet, proxy):
        process.release()


def image_archive(folder: StateFolder) -> Path:
    return folder.path / "image.tar"
