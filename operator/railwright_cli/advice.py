"""What a user can do about each reason for which a job waits: the texts of docs/glossary.md."""

from __future__ import annotations

WHAT_TO_DO = {
    "Queued": "Wait: a second, or the back-off in the message.",
    "Unreadable": "Correct the field that the message names.",
    "QueueNotFound": "Create the queue, or use one that the message lists.",
    "PriorityClassNotFound": "Create the class, or use one that the message lists.",
    "RuntimeClassNotFound": "Create the class, or use one that the message lists.",
    "RuntimeClassRefused": "Change the class or the role, as the message says.",
    "PodNamesTaken": (
        "Wait until those pods have ended. If their node is dead, delete its Node object, or "
        "force-delete the pods."
    ),
    "TierNotFound": (
        "Use a tier that the message lists, or nearest, second or third. scale-up-domain needs "
        "scale-up domains that do not cross racks."
    ),
    "NeverFits": (
        "Request no more than the message says the cluster has, or tolerate the taints that it "
        "names."
    ),
    "NotEnoughNodes": (
        "Wait, or add nodes. The message has the number of free nodes, and what occupies the rest."
    ),
    "BlockedByReservation": "Wait, or raise the priority.",
    "NotEvaluated": "Wait: the next cycles continue where the last one stopped.",
    "InternalError": (
        "Report the message and the operator's log line job handling failed as a bug. The "
        "operator tries again, at first after seconds, later every five minutes, and at once "
        "when the spec changes."
    ),
    "MappingPending": "Wait: after two seconds it starts without.",
    "BindingBacklog": "Wait: seconds, or as long as the API server takes for those pods.",
    "LedgerFull": (
        "Repair the dead nodes or delete their Node objects. In the second case, use fewer "
        "replicas, or nodes with shorter names."
    ),
    "TooLarge": "Move what the message names to a ConfigMap, a volume or the image.",
}
