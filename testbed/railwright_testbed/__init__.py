"""A real Kubernetes on one machine, without Docker: for the demo and the tests.

`ControlPlane` is etcd, kube-apiserver and kube-controller-manager, with simulated nodes if asked.
`Testbed` adds a handful of real nodes, each a kubelet and a containerd in a network namespace.
"""

from __future__ import annotations

from railwright_testbed.control_plane import ControlPlane, ControlPlaneOptions
from railwright_testbed.errors import TestbedError
from railwright_testbed.identity import Entrance
from railwright_testbed.kwok import Kwok, NodeSpec
from railwright_testbed.node import RealNode
from railwright_testbed.requirements import missing_for_real_nodes
from railwright_testbed.testbed import Testbed

__all__ = [
    "ControlPlane",
    "ControlPlaneOptions",
    "Entrance",
    "Kwok",
    "NodeSpec",
    "RealNode",
    "Testbed",
    "TestbedError",
    "missing_for_real_nodes",
]
