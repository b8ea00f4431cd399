"""Every name that stands in objects of the cluster: group, plurals, labels, reserved words."""

from __future__ import annotations

GROUP = "railwright.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

TRAINING_JOBS = "trainingjobs"
QUEUES = "queues"
FABRICS = "fabrics"
PLACEMENTS = "placements"
PROFILES = "profiles"
LEDGERS = "ledgers"
NODE_HEALTHS = "nodehealths"

SCHEDULER = "railwright"
"""``schedulerName`` of our pods: no other scheduler touches them."""

SINGLETON = "default"
"""The name of the one Fabric and the one Ledger, and of the queue of jobs that name none."""

LABEL_JOB_NAME = f"{GROUP}/job-name"
LABEL_JOB_UID = f"{GROUP}/job-uid"
LABEL_ATTEMPT = f"{GROUP}/attempt"
LABEL_NODE_RANK = f"{GROUP}/node-rank"
LABEL_ROLE = f"{GROUP}/role"
LABEL_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Index of the pod in its role, for dashboards that know Indexed Jobs."""

LABEL_BLOCK = f"{GROUP}/block"
LABEL_RACK = f"{GROUP}/rack"

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
"""The label, and the taint, of nodes of the control plane."""

LABEL_FABRIC = f"{GROUP}/fabric"
"""On ConfigMaps with files about the network: the Fabric that they are of."""

PROBES = "railwright-probes"
"""The ConfigMap in which the controllers store the results of surveys."""

JOB_AND_ROLE_LENGTH_MAX = 49
POD_NAME_LENGTH_MAX = 63

RESERVED_PREFIX = "railwright"
RESERVED_ENV_PREFIX = "RAILWRIGHT_"
RESERVED_ENV = (
    "RANK",
    "LOCAL_RANK",
    "NODE_RANK",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_NAME",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)


def placement_name(job_name: str, attempt: int) -> str:
    """The Placement of an attempt."""
    return f"{job_name}-{attempt}"


def pod_name(job_name: str, role: str, index: int, attempt: int) -> str:
    """The pod of a role in an attempt, within 63 characters up to attempt 999,999."""
    return f"{job_name}-{role}-{index}-{attempt}"
