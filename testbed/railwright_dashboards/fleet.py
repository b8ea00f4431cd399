"""Fleet health: are the accelerators at work, and which nodes keep them from it?"""

from __future__ import annotations

from railwright_dashboards.panels import Dashboard, Unit, areas, lines, number, table

DEVICES = "max by (resource) (railwright_devices)"
LOST = "max by (resource) (railwright_devices_unavailable)"
FREE = "max by (resource) (railwright_devices_free)"
USED = f"({DEVICES} - {LOST} - {FREE})"
"""Of each kind: plugins count other things than accelerators too, some by the thousand."""

ENDED = "round(sum by (cause) (increase(railwright_attempts_ended_total[1h]))) > 0"
"""Rounded: Prometheus extrapolates an increase."""

SLOW = "min by (node_name, measure) (railwright_node_relative_speed) < 1"
"""A node that is slow in one measure has series of all."""

DASHBOARD = Dashboard(
    "railwright-fleet",
    "Railwright / Fleet health",
    "Are the accelerators at work, and which nodes keep them from it?",
    (
        number(
            "Share of devices in use",
            f"{USED} / {DEVICES}",
            "Share of the devices that pods hold on available nodes, whoever owns the pods.",
            Unit.SHARE,
            legend="{{resource}}",
        ),
        number("Devices", DEVICES, "Devices of all nodes.", legend="{{resource}}"),
        number(
            "Devices not available",
            LOST,
            "Devices of nodes that are not ready, cordoned or lost. They are part of all devices, "
            "and pods may still hold them.",
            legend="{{resource}}",
            alarm=1,
        ),
        number(
            "Nodes not available",
            'sum(max by (state) (railwright_nodes{state!="Available"}))',
            "Nodes on which no pod is placed.",
            alarm=1,
        ),
        lines(
            "Devices in use, free and unusable",
            {
                "in use: {{resource}}": USED,
                "free: {{resource}}": FREE,
                "unusable: {{resource}}": LOST,
                "all: {{resource}}": DEVICES,
            },
            "The first three add up to all devices. Unusable are those of nodes that are not "
            "available, also while pods hold them.",
        ),
        areas(
            "Nodes by state",
            "max by (state) (railwright_nodes) > 0",
            "{{state}}",
            "Available nodes, and why no pod is placed on the others.",
        ),
        areas(
            "Jobs by phase",
            "max by (phase) (railwright_jobs) > 0",
            "{{phase}}",
            "All TrainingJobs. Jobs that wait are Queued, those that lost a node Recovering until "
            "they have nodes again.",
            may_be_empty=True,
        ),
        areas(
            "Attempts ended in the last hour",
            ENDED,
            "{{cause}}",
            "Attempts that were ended before they succeeded, by cause.",
            may_be_empty=True,
        ),
        table(
            "Nodes that are not available",
            "max by (node_name, state) (railwright_node_unavailable)",
            "Why no pod is placed on each of them; the first two hundred.",
            column="",
            may_be_empty=True,
        ),
        table(
            "Slow nodes",
            SLOW,
            "Speed of the slowest device of a node over that of most devices of its kind. The "
            "scheduler places jobs elsewhere if it can.",
            Unit.SHARE,
            column="Relative speed",
            may_be_empty=True,
        ),
        number(
            "Slow devices",
            "max(railwright_fabric_slow_devices)",
            "Devices that are slower than most of their kind.",
            alarm=1,
        ),
        number(
            "Miscabled nodes",
            "max(railwright_fabric_miscabled_nodes)",
            "Nodes with a rail that leads to a switch of another rail.",
            alarm=1,
            may_be_empty=True,
        ),
        number(
            "Silent node agents",
            'max(railwright_fabric_agents{state="Silent"})',
            "Agents without a report for fifteen minutes.",
            alarm=1,
        ),
        number(
            "Double-booked nodes",
            "max(railwright_double_booked_nodes)",
            "Nodes whose pods, of several attempts, hold more than the node has.",
            alarm=1,
        ),
    ),
)
