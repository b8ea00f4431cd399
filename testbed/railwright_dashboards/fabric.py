"""Fabric: is the topology that jobs are placed by complete, recent and free of conflicts?"""

from __future__ import annotations

from railwright_dashboards.panels import Dashboard, Unit, bars, lines, number, quantiles, table

DASHBOARD = Dashboard(
    "railwright-fabric",
    "Railwright / Fabric",
    "Is the topology that jobs are placed by complete, recent and free of conflicts?",
    (
        number("Nodes", "max(railwright_fabric_nodes)", "Nodes of the Fabric."),
        number(
            "Conflicts",
            "max(railwright_fabric_conflicts)",
            "Nodes or properties for which two sources report different values. `kubectl get "
            "fabric default -o yaml` names them.",
            alarm=1,
        ),
        number(
            "Problems of the Fabric",
            "max(railwright_fabric_problems)",
            "Errors in files and nodes, silent agents, and what prevents surveys. `kubectl get "
            "fabric default -o yaml` has them.",
            alarm=1,
        ),
        number(
            "Fabric last checked",
            "time() - max(railwright_fabric_checked_timestamp_seconds)",
            "Time since the controllers last compared the Fabric with its sources. They do so once "
            "a minute.",
            Unit.DURATION,
            alarm=300,
        ),
        lines(
            "Nodes by source",
            {
                "{{source}}": "max by (source) (railwright_fabric_source_nodes)",
                "all nodes": "max(railwright_fabric_nodes)",
            },
            "Nodes that each source of topology information covers, and all nodes.",
        ),
        bars(
            "Domains by level",
            "max by (level) (railwright_fabric_domains)",
            "{{level}}",
            "Domains of each level of the topology.",
        ),
        lines(
            "Cabling faults",
            {"{{source}}": "max by (source) (railwright_fabric_cabling_faults)"},
            "Faults in the cables that each source reports.",
            may_be_empty=True,
        ),
        lines(
            "Miscabled nodes and slow devices",
            {
                "miscabled nodes": "max(railwright_fabric_miscabled_nodes)",
                "slow devices": "max(railwright_fabric_slow_devices)",
            },
            "Nodes whose rails lead to a wrong switch, and devices that are slower than most.",
            may_be_empty=True,
        ),
        lines(
            "Node agents",
            {"{{state}}": "max by (state) (railwright_fabric_agents)"},
            "Agents that reported since the controllers started. Silent are those without a report "
            "for fifteen minutes.",
        ),
        table(
            "Age of files and measurements",
            "time() - max by (source) (railwright_fabric_source_timestamp_seconds)",
            "Time since the last write to the file of a source, or since its oldest measurement.",
            Unit.DURATION,
            column="Age",
            may_be_empty=True,
        ),
        number(
            "Oldest report of an agent",
            "time() - min(railwright_fabric_oldest_report_timestamp_seconds)",
            "Time since the agent that has been silent for the longest time reported.",
            Unit.DURATION,
            alarm=900,
            may_be_empty=True,
        ),
        number(
            "Measured nodes",
            "max(railwright_fabric_measured_nodes)",
            "Nodes whose devices were benchmarked.",
        ),
        number(
            "Nodes to be measured",
            "max(railwright_survey_due_nodes)",
            "Nodes to be measured that no survey contains yet.",
        ),
        number(
            "Nodes ready for a survey",
            "max(railwright_survey_polling_nodes)",
            "Nodes to be measured whose agents poll for probe tasks.",
        ),
        lines(
            "Surveys and probes, per hour",
            {
                "surveys {{outcome}}": "sum by (outcome) (increase(railwright_surveys_total[1h]))",
                "probes {{outcome}}": "sum by (outcome) (increase(railwright_probes_total[1h]))",
            },
            "Surveys of the network, and the probes of node agents that they consist of.",
            may_be_empty=True,
        ),
        lines(
            "Time of a survey",
            quantiles("railwright_survey_seconds", 0.5, 0.95, window="1h"),
            "Time from the first probe of a survey to its end.",
            Unit.SECONDS,
            may_be_empty=True,
        ),
    ),
)
