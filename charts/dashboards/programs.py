"""The rows of the Fleet dashboard about the programs: do the operator and the agents keep up, and within their budgets?"""

from grafana_foundation_sdk.builders import dashboard

from charts.dashboards import queries as q
from charts.dashboards.panels import BYTES, COUNT, PER_SECOND, SECONDS, over_time, row, steps


def operator(board: dashboard.Dashboard) -> None:
    board.with_row(row("Operator"))
    seconds = "nodedevice_operator_change_to_node_seconds"
    board.with_panel(
        over_time(
            "From a change to the Node",
            "From when a NodeDevice was seen to have changed to when its Node had been written; the goal is 0.15 s and 0.5 s.",
            {"median": q.quantile(0.5, seconds), "99 %": q.quantile(0.99, seconds)},
            unit=SECONDS,
            width=8,
            thresholds=steps(0.15, 0.5),
        )
    )
    board.with_panel(
        over_time(
            "Reconcile of a node",
            "How long one reconcile takes, writes included.",
            {
                "median": q.quantile(0.5, "nodedevice_operator_reconcile_duration_seconds"),
                "99 %": q.quantile(0.99, "nodedevice_operator_reconcile_duration_seconds"),
            },
            unit=SECONDS,
            width=8,
        )
    )
    board.with_panel(
        over_time(
            "Writes to the API server",
            "By kind and how they ended; nothing changes, nothing is written.",
            {"{{kind}} {{outcome}}": q.rate("nodedevice_operator_api_writes_total", "kind, outcome")},
            unit=PER_SECOND,
            width=8,
        )
    )
    board.with_panel(
        over_time(
            "Nodes that wait",
            "To be reconciled, and to be retried after a reconcile that failed.",
            {
                "queued": f"sum(nodedevice_operator_waiting_nodes{{{q.CLUSTER}}})",
                "failed": f"sum(nodedevice_operator_failing_nodes{{{q.CLUSTER}}})",
            },
            width=8,
        )
    )
    board.with_panel(
        over_time(
            "Memory of the operator",
            "Resident memory of each replica; the budget for 5,000 nodes is 200 MiB.",
            {
                "{{instance}}": f"process_resident_memory_bytes{{{q.CLUSTER}}} * on (cluster, instance) group_left () "
                f"nodedevice_operator_info{{{q.CLUSTER}}}"
            },
            unit=BYTES,
            width=8,
        )
    )
    board.with_panel(
        over_time(
            "Events lost",
            "Kubernetes Events that could not be posted; nothing but a message to people is lost with them.",
            {"lost": f"sum(increase(nodedevice_operator_events_lost_total{{{q.CLUSTER}}}[$__range]))"},
            width=8,
        )
    )


def agents(board: dashboard.Dashboard) -> None:
    board.with_row(row("Agents"))
    for title, description, histogram, by in (
        (
            "Allocate",
            "How long device plugins take for an Allocate call, 99 of 100.",
            "allocate",
            "resource_name",
        ),
        (
            "PreStartContainer",
            "How long device plugins take for a PreStartContainer call, 99 of 100.",
            "pre_start",
            "resource_name",
        ),
        ("Requests of the runtime", "How long answers to NRI requests take, 99 of 100.", "nri_request", "method"),
    ):
        board.with_panel(
            over_time(
                title,
                description,
                {f"{{{{{by}}}}}": q.quantile(0.99, f"nodedevice_agent_{histogram}_seconds", f"{by}, ", q.OF_NODE)},
                unit=SECONDS,
                width=8,
            )
        )
    board.with_panel(
        over_time(
            "Durable writes",
            "How long it takes until an allocation is on disk, 99 of 100: a line of the journal, or the checkpoint whole.",
            {
                "journal": q.quantile(0.99, "nodedevice_agent_journal_write_seconds", matchers=q.OF_NODE),
                "checkpoint": q.quantile(0.99, "nodedevice_agent_checkpoint_write_seconds", matchers=q.OF_NODE),
            },
            unit=SECONDS,
            width=8,
        )
    )
    board.with_panel(
        over_time(
            "Writes to the API server by agents",
            "Their Leases, once in 20 s a node, and NodeDevices when something changed.",
            {"{{kind}} {{outcome}}": q.rate("nodedevice_agent_api_writes_total", "kind, outcome", q.OF_NODE)},
            unit=PER_SECOND,
            width=8,
        )
    )
    board.with_panel(
        over_time(
            "From a change to the NodeDevice",
            "From when a resource's status may have changed to when it had been written, checkpoint included, 99 of 100.",
            {"99 %": q.quantile(0.99, "nodedevice_agent_publish_seconds", matchers=q.OF_NODE)},
            unit=SECONDS,
            width=8,
        )
    )
    failures = {
        "Allocate": "allocate_failures_total",
        "PreStartContainer": "pre_start_failures_total",
        "containers refused": "containers_refused_total",
        "registrations refused": "registrations_refused_total",
    }
    board.with_panel(
        over_time(
            "Failures",
            "Calls that plugins failed, containers that were refused for want of a device, plugins that were refused.",
            {
                name: f"sum(increase(nodedevice_agent_{counter}{{{q.OF_NODE}}}[$__rate_interval])) or vector(0)"
                for name, counter in failures.items()
            },
            width=12,
        )
    )
    board.with_panel(
        over_time(
            "Memory of agents",
            "Resident memory of the ten largest, mapped code included; an idle agent has some 60 MiB.",
            {
                "{{node}}": f"topk(10, process_resident_memory_bytes{{{q.OF_NODE}}} * on (cluster, instance) group_left () "
                f"nodedevice_agent_info{{{q.OF_NODE}}})"
            },
            unit=BYTES,
        )
    )


def extender(board: dashboard.Dashboard) -> None:
    board.with_row(row("Extender"))
    for title, description, queries, unit in (
        (
            "Active extenders",
            "One answers the scheduler, the others stand by.",
            {"active": f"sum(nodedevice_extender_active{{{q.CLUSTER}}})"},
            COUNT,
        ),
        (
            "Requests of the scheduler",
            "By verb and how they ended; no_fit: no node had a device with enough parts free.",
            {"{{verb}} {{outcome}}": q.rate("nodedevice_extender_requests_total", "verb, outcome")},
            PER_SECOND,
        ),
        (
            "Time of a request",
            "How long the scheduler waits for an answer, 99 of 100; of bind with the API server's part.",
            {"{{verb}}": q.quantile(0.99, "nodedevice_extender_request_seconds", "verb, ")},
            SECONDS,
        ),
        (
            "Binds that found their parts taken",
            "By another pod since filter, or by a device that broke; the pod is tried again.",
            {"conflicts": f"sum(increase(nodedevice_extender_bind_conflicts_total{{{q.CLUSTER}}}[$__range]))"},
            COUNT,
        ),
        (
            "Promised parts",
            "Of pods that are bound, or about to be, and that no NodeDevice lists yet.",
            {"{{resource}}": f"sum by (resource) (nodedevice_extender_promised_parts{{{q.CLUSTER}}})"},
            COUNT,
        ),
        (
            "Binds not seen yet",
            "Sent, and not yet in a watch; more than a few for a minute: their outcome is not known.",
            {"unseen": f"sum(nodedevice_extender_unseen_binds{{{q.CLUSTER}}})"},
            COUNT,
        ),
    ):
        board.with_panel(over_time(title, description, queries, unit=unit, width=8))
