"""The nodes of a live attempt whose Placement is missing, read from its pods.

Its Placement was written before the first of its pods. A person may have deleted it since, or a
backup may be older. Every pod of a bound gang is on the node of its rank, so the attempt goes on. A
rank without a pod has an unknown node, and ends the attempt as any deleted pod does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from railwright_api.schema import NODES_MAX
from railwright_operator.watch.jobs import CachedJob
from railwright_operator.watch.records import PodRecord
from railwright_scheduler.attempt.phases import Phase

logger = logging.getLogger(__name__)

UNKNOWN_NODE = "unknown-node"


def nodes(cached: CachedJob, pods: Iterable[PodRecord]) -> tuple[str, ...]:
    """The node of each pod of the live attempt. Logs that its Placement is missing."""
    record = cached.record
    found = {pod.node_rank: pod.node for pod in pods if pod.node and pod.node_rank < NODES_MAX}
    # The spec may have changed while the job was suspended: no pod of the attempt is left out.
    count = max([sum(role.replicas for role in cached.roles), *(rank + 1 for rank in found)])
    if record.phase is Phase.PROFILING:
        # It has one role, on fewer nodes than the job, and one pod on each of them.
        count = min(count, max(1, cached.raw["status"].get("nodes", 1)))
    extra = {"job_uid": cached.uid, "attempt": record.attempt, "pods": len(found)}
    logger.warning("placement missing, nodes read from pods", extra=extra)
    return tuple(found.get(rank, UNKNOWN_NODE) for rank in range(count))
