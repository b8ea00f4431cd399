"""The configuration files of one real node: containerd, its network plugins, and the kubelet."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from railwright_testbed import images, requirements
from railwright_testbed.errors import TestbedError

_PODS_MOST = 50
CLUSTER_DOMAIN = "cluster.local"

# What a kubelet would set for the whole machine. It is shown these values instead (see node.py).
KERNEL_SETTINGS_SHOWN = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def write_containerd(folder: Path, *, socket: Path, pod_subnet: str, ctr: Path) -> Path:
    """containerd's configuration and what it refers to; returns the path of the file."""
    plugins = requirements.plugin_folder()
    runc = shutil.which("runc")
    assert plugins is not None, "the packages were installed before"
    assert runc is not None, "the packages were installed before"
    networks = folder / "networks"
    networks.mkdir(parents=True, exist_ok=True)
    (networks / "10-testbed.conflist").write_text(json.dumps(_network(folder, pod_subnet)))
    base_spec = folder / "base-spec.json"
    base_spec.write_text(json.dumps(_base_spec(ctr)))
    settings: dict[str, dict[str, Any]] = {
        "": {
            "version": 3,
            "root": f"{folder}/root",
            "state": f"{folder}/run",
            "disabled_plugins": [
                "io.containerd.nri.v1.nri",
                "io.containerd.snapshotter.v1.blockfile",
                "io.containerd.snapshotter.v1.btrfs",
                "io.containerd.snapshotter.v1.devmapper",
                "io.containerd.snapshotter.v1.erofs",
                "io.containerd.snapshotter.v1.zfs",
                "io.containerd.tracing.processor.v1.otlp",
            ],
        },
        "grpc": {"address": str(socket)},
        "debug": {"level": "warn"},
        "plugins.'io.containerd.internal.v1.opt'": {"path": f"{folder}/opt"},
        "plugins.'io.containerd.shim.v1.manager'": {"socket_dir": str(socket.parent)},
        "plugins.'io.containerd.cri.v1.runtime'": {
            # Else runc dies with "failed to update /proc/self/oom_score_adj".
            "restrict_oom_score_adj": True,
            # Else they lie among the machine's own network namespaces, and stay after a crash.
            "netns_mounts_under_state_dir": True,
        },
        "plugins.'io.containerd.cri.v1.runtime'.cni": {
            "bin_dirs": [str(plugins)],
            "conf_dir": str(networks),
        },
        "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc": {
            "runtime_type": "io.containerd.runc.v2",
            "base_runtime_spec": str(base_spec),
        },
        "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options": {
            "BinaryName": runc,
            "Root": f"{folder}/runc",
        },
        "plugins.'io.containerd.cri.v1.images'.pinned_images": {"sandbox": images.POD_IMAGE},
    }
    path = folder / "containerd.toml"
    path.write_text("".join(_toml_table(name, values) for name, values in settings.items()))
    return path


def write_kubelet(folder: Path, *, socket: Path, cgroup: str, dns: str) -> Path:
    """The kubelet's configuration. What a node's death is detected by stays at its default."""
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "maxPods": _PODS_MOST,
        "podLogsDir": f"{folder}/log/pods",
        "volumePluginDir": f"{folder}/kubelet/volume-plugins",
        "clusterDNS": [dns],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": "",
        # Only the testbed's own network reaches it, and every pod there is the user's own.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "readOnlyPort": 0,
        # The nodes share the machine's disk: a full disk must not count as their fault.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "imagefs.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
        },
    }
    path = folder / "kubelet.json"
    path.write_text(json.dumps(settings, indent=1))
    return path


def _network(folder: Path, pod_subnet: str) -> dict[str, Any]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": pod_subnet}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": f"{folder}/addresses",
    }
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "ipam": addresses,
    }
    return {"cniVersion": "1.0.0", "name": "testbed", "plugins": [bridge]}


def _base_spec(ctr: Path) -> dict[str, Any]:
    """containerd's usual container, with the host's programs in it."""
    answer = subprocess.run(
        [str(ctr), "oci", "spec"], capture_output=True, text=True, check=False, timeout=60
    )
    if answer.returncode != 0:
        raise TestbedError(f"`{ctr} oci spec` ended with {answer.returncode}: {answer.stderr}")
    spec: dict[str, Any] = json.loads(answer.stdout)
    spec["mounts"] = [*spec["mounts"], *images.mounts()]
    # The limits of the machine hold, instead of 1,024 open files.
    del spec["process"]["rlimits"]
    return spec


def _toml_table(name: str, values: dict[str, Any]) -> str:
    # Strings, numbers, booleans and lists of strings read the same in JSON and in TOML.
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in values.items()]
    return "".join([f"[{name}]\n" if name else "", *lines, "\n"])
