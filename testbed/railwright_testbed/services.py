"""What Deployments and Services need: kube-proxy on each node, one kube-scheduler, one CoreDNS.

So a pod reaches a Service by its address and by its name, as in any cluster. kube-scheduler and
CoreDNS are processes of the machine and no pods: no node that dies takes them with it.
"""

from __future__ import annotations

import contextlib
import http
import http.client
import json
from pathlib import Path

from railwright_testbed import binaries, node, node_settings
from railwright_testbed.node import RealNode
from railwright_testbed.processes import Process
from railwright_testbed.state_folder import StateFolder

_READY_DEADLINE_S = 60.0
_PROXY_HEALTH_PORT = 10256
_DNS_READY_PORT = 8181

# A name that is no Service does not exist: nothing here leads to the outside.
_COREFILE = """\
{domain}:53 {{
    bind {address}
    errors
    ready {address}:{ready_port}
    kubernetes {{
        kubeconfig {kubeconfig}
        ttl 1
    }}
}}
.:53 {{
    bind {address}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def start_proxy(
    real: RealNode, folder: StateFolder, *, containerd: Process, kubeconfig: Path
) -> Process:
    """kube-proxy in the namespaces of a node, where its rules are."""
    settings = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "hostnameOverride": real.name,
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "healthzBindAddress": f"{real.address}:{_PROXY_HEALTH_PORT}",
        "metricsBindAddress": "127.0.0.1:10249",
        # These are settings of the whole machine: they stay as they are.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "iptables": {"localhostNodePorts": False},
    }
    config = real.directory / "kube-proxy.json"
    config.write_text(json.dumps(settings, indent=1))
    process = Process(
        f"kube-proxy-{real.name}",
        [
            *node.in_its_namespaces(real, containerd),
            str(binaries.find(binaries.REAL_NODES)["kube-proxy"]),
            f"--config={config}",
        ],
        log=folder.logs / f"{real.name}-kube-proxy.log",
        records=folder.records,
    )
    node.put_into_cgroup(real, process)
    return process


def start_dns(folder: StateFolder, *, address: str, kubeconfig: Path) -> Process:
    """CoreDNS at port 53 of the bridge."""
    corefile = folder.path / "Corefile"
    corefile.write_text(
        _COREFILE.format(
            address=address,
            ready_port=_DNS_READY_PORT,
            domain=node_settings.CLUSTER_DOMAIN,
            kubeconfig=kubeconfig,
        )
    )
    program = binaries.find(binaries.REAL_NODES)["coredns"]
    process = Process(
        "coredns",
        [str(program), "-conf", str(corefile)],
        log=folder.logs / "coredns.log",
        records=folder.records,
    )
    process.until(
        lambda: _answers(address, _DNS_READY_PORT, "/ready"),
        "CoreDNS to be ready",
        deadline_s=_READY_DEADLINE_S,
    )
    return process


def start_scheduler(folder: StateFolder, *, kubeconfig: Path) -> Process:
    """kube-scheduler, for pods without a scheduler of their own."""
    own = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    program = binaries.find(binaries.REAL_NODES)["kube-scheduler"]
    identified = [f"--{name}={kubeconfig}" for name in own]
    return Process(
        "kube-scheduler",
        [str(program), *identified, "--leader-elect=false", "--secure-port=0"],
        log=folder.logs / "kube-scheduler.log",
        records=folder.records,
    )


def is_proxied(real: RealNode) -> bool:
    """Whether the rules of the Services are in place on the node."""
    return _answers(real.address, _PROXY_HEALTH_PORT, "/healthz")


def _answers(address: str, port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(address, port, timeout=2)
    with contextlib.closing(connection), contextlib.suppress(OSError):
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    return False
