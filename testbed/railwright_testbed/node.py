"""One real node: a containerd and a kubelet, alone in a network and a mount namespace.

Both share a mount namespace that only they see, so that whatever they mount is gone with them, and
a control group from which everything they ever started is found and killed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from railwright_testbed import binaries, kernel_objects, node_settings, waiting
from railwright_testbed.errors import TestbedError
from railwright_testbed.processes import Process
from railwright_testbed.state_folder import StateFolder

RACK_LABEL = "railwright.dev/rack"
BLOCK_LABEL = "railwright.dev/block"
GPUS_LABEL = "testbed.railwright.dev/gpus"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
"""The taint of the system node, which keeps jobs away. Its label has the same name."""

_SOCKET_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class RealNode:
    """What a node is; its processes may be alive or not. The system node has no rack."""

    name: str
    # Its place in the list of nodes, from which its link and addresses follow.
    index: int
    rack: str
    block: str
    gpus: int
    address: str
    # The bridge, where the machine answers, and its DNS.
    bridge: str
    pod_subnet: str
    testbed_id: str
    directory: Path

    @property
    def is_system(self) -> bool:
        return not self.rack

    @property
    def namespace(self) -> str:
        return kernel_objects.namespace_name(self.testbed_id, self.name)

    @property
    def link(self) -> str:
        """The host's end of its cable."""
        return kernel_objects.link_name(self.testbed_id, self.index)

    @property
    def cgroup(self) -> str:
        return f"{kernel_objects.cgroup_name(self.testbed_id)}/{self.name}"

    @property
    def socket(self) -> Path:
        return kernel_objects.socket_folder(self.testbed_id) / f"{self.name}.sock"


def to_json(node: RealNode) -> dict[str, Any]:
    return {**asdict(node), "directory": str(node.directory)}


def from_json(values: dict[str, Any]) -> RealNode:
    return RealNode(**{**values, "directory": Path(values["directory"])})


def start_containerd(node: RealNode, folder: StateFolder) -> Process:
    programs = binaries.find(binaries.REAL_NODES)
    config = node_settings.write_containerd(
        node.directory, socket=node.socket, pod_subnet=node.pod_subnet, ctr=programs["ctr"]
    )
    node.socket.parent.mkdir(parents=True, exist_ok=True)
    # What a machine keeps in memory is gone when it starts again.
    shutil.rmtree(node.directory / "run", ignore_errors=True)
    shutil.rmtree(node.directory / "runc", ignore_errors=True)
    node.socket.unlink(missing_ok=True)
    # Not `ip netns exec`: that mounts a new /sys, and hides the control groups from the kubelet.
    own_namespaces = [
        "nsenter",
        f"--net={kernel_objects.NAMESPACES / node.namespace}",
        *("unshare", "--mount", "--propagation", "slave"),
    ]
    process = Process(
        f"containerd-{node.name}",
        [*own_namespaces, str(programs["containerd"]), f"--config={config}"],
        log=folder.logs / f"{node.name}-containerd.log",
        records=folder.records,
        # containerd looks for its shim on PATH.
        environment={"PATH": f"{programs['containerd'].parent}:{os.environ['PATH']}"},
    )
    put_into_cgroup(node, process)
    return process


def import_images(node: RealNode, containerd: Process, *, archive: Path) -> None:
    """Wait for containerd and give it the image archive."""
    containerd.until(node.socket.exists, "its socket", deadline_s=_SOCKET_DEADLINE_S)
    ctr = str(binaries.find(binaries.REAL_NODES)["ctr"])
    arguments = ["--namespace=k8s.io", "images", "import", "--local", str(archive)]
    command = [ctr, f"--address={node.socket}", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if answer.returncode != 0:
        raise TestbedError(
            f"{node.name} did not take the image: {answer.stderr.strip()}\n{containerd.evidence()}"
        )


def start_kubelet(
    node: RealNode, folder: StateFolder, *, containerd: Process, kubeconfig: Path
) -> Process:
    program = binaries.find(binaries.REAL_NODES)["kubelet"]
    config = node_settings.write_kubelet(
        node.directory, socket=node.socket, cgroup=node.cgroup, dns=node.bridge
    )
    _hide_the_machine(node, _mounts_of(containerd))
    process = Process(
        f"kubelet-{node.name}",
        [
            *in_its_namespaces(node, containerd),
            str(program),
            f"--config={config}",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={node.directory / 'kubelet'}",
            f"--cert-dir={node.directory / 'kubelet' / 'pki'}",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
            *_registration(node),
        ],
        log=folder.logs / f"{node.name}-kubelet.log",
        records=folder.records,
    )
    put_into_cgroup(node, process)
    return process


def _registration(node: RealNode) -> list[str]:
    """The labels and taints that its Node is created with."""
    if node.is_system:
        return [f"--register-with-taints={CONTROL_PLANE}=:NoSchedule"]
    labels = f"{RACK_LABEL}={node.rack},{BLOCK_LABEL}={node.block}"
    if node.gpus:
        labels += f",{GPUS_LABEL}={node.gpus}"
    return [f"--node-labels={labels}"]


def in_its_namespaces(node: RealNode, containerd: Process) -> tuple[str, ...]:
    """What starts a program in the network and the mounts of a node."""
    network = f"--net={kernel_objects.NAMESPACES / node.namespace}"
    return "nsenter", network, _mounts_of(containerd)


def _mounts_of(containerd: Process) -> str:
    return f"--mount=/proc/{containerd.record.pid}/ns/mnt"


def _hide_the_machine(node: RealNode, mount_namespace: str) -> None:
    """Mount the writable folders of the node privately.

    Whatever the configuration says, a kubelet links logs into /var/log/containers, listens in
    /var/lib/kubelet, and sets kernel settings for the whole machine; network plugins write to
    /var/lib/cni. None of it should meet another node's or outlive a testbed.
    """
    for name in ("lib", "log"):
        layers = [node.directory / "var" / name / kind for kind in ("upper", "work")]
        for layer in layers:
            layer.mkdir(parents=True, exist_ok=True)
        options = f"lowerdir=/var/{name},upperdir={layers[0]},workdir={layers[1]}"
        _mount(
            mount_namespace, "--types=overlay", f"--options={options}", "overlay", f"/var/{name}"
        )
    shown = node.directory / "kernel-settings"
    shown.mkdir(exist_ok=True)
    for name, value in node_settings.KERNEL_SETTINGS_SHOWN.items():
        target = Path("/proc/sys", name)
        if target.exists():
            # A kubelet does not touch a setting that has its value already.
            source = shown / name.replace("/", ".")
            source.write_text(f"{value}\n")
            _mount(mount_namespace, "--bind", str(source), str(target))


def _mount(mount_namespace: str, *arguments: str) -> None:
    command = ["nsenter", mount_namespace, "mount", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise TestbedError(
            f"`{' '.join(command)}` ended with {answer.returncode}: {answer.stderr.strip()}"
        )


def put_into_cgroup(node: RealNode, process: Process) -> None:
    """Into every hierarchy that lets one in: what it starts later is found there."""
    joined = []
    for hierarchy in kernel_objects.cgroup_hierarchies():
        group = hierarchy / node.cgroup / "system"
        group.mkdir(parents=True, exist_ok=True)
        try:
            (group / "cgroup.procs").write_text(str(process.record.pid))
        except OSError:
            # With version 1, a new group of the cpuset controller takes nobody before it is set up.
            continue
        joined.append(group)
    if not joined:
        raise TestbedError(f"{node.name}: no control group takes {process!r}")
    waiting.until(lambda: process.alive, f"{process!r} to live", deadline_s=1)
