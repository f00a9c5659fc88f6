"""The Fleet dashboard: is every device there, healthy and offered, and do operator and agents keep up?

The rows follow an investigation: is something wrong, where, and is nodedevice the cause?
"""

from grafana_foundation_sdk.builders import dashboard

from charts.dashboards import fleet_panels
from charts.dashboards import queries as q
from charts.dashboards.frame import FLEET_UID, HOLDERS_UID, KEPT, frame
from charts.dashboards.panels import WARN, any_is_bad, listing, number, over_time, row
from charts.dashboards.programs import agents, extender, operator

_NODE_LINK = f"/d/{FLEET_UID}?{KEPT}&var-node=${{__value.text}}"
_HOLDERS_LINK = f"/d/{HOLDERS_UID}?{KEPT}&var-node=${{__value.text}}"


def fleet() -> dashboard.Dashboard:
    board = frame(
        FLEET_UID,
        "nodedevice / Fleet",
        "Devices of all nodes by state: healthy, in use, free; and the load of operator and agents.",
    )
    for add in (_now, _devices, _ways, _trouble, operator, agents, extender):
        add(board)
    return board


def _now(board: dashboard.Dashboard) -> None:
    silent = q.once("nodedevice_operator_agents", "state", f'{q.CLUSTER}, state!="alive"')
    not_ready = q.once("nodedevice_operator_not_ready", "node, resource_name, reason", q.OF_BOTH)
    for panel in (
        *fleet_panels.numbers(q),
        fleet_panels.not_ready(f"count({not_ready}) or vector(0)"),
        fleet_panels.conflicts(f"sum({q.once('nodedevice_operator_conflicts')})"),
        number("Silent agents", "Agents that do not renew their Lease.", f"sum({silent})", thresholds=any_is_bad()),
        number(
            "Pending pods",
            "Pods that are bound to a node, without devices yet.",
            f"sum(nodedevice_agent_pods_waiting{{{q.OF_BOTH}}})",
            thresholds=any_is_bad(WARN),
        ),
        number(
            "Run without devices",
            "Containers that run without the devices they asked for; delete their pods.",
            f"sum(nodedevice_agent_containers_without_devices{{{q.OF_BOTH}}}) or vector(0)",
            thresholds=any_is_bad(),
        ),
        number(
            "Operators that lead",
            "One operator leads and writes; 0 means that none does. More than one lasts only for a moment.",
            f"sum(nodedevice_operator_leader{{{q.CLUSTER}}})",
        ),
    ):
        board.with_panel(panel)


def _devices(board: dashboard.Dashboard) -> None:
    board.with_row(row("Devices"))
    states = ("available", "allocated", "releasing", "cordoned")
    board.with_panel(
        over_time(
            "Devices by state",
            "Of the selected resources, in the whole cluster. Releasing: the pod is over and its container is not.",
            {**{state: q.devices(state) for state in states}, "unhealthy": q.unhealthy()},
        )
    )
    board.with_panel(fleet_panels.in_use_by_resource(q))
    board.with_panel(fleet_panels.broken_by_resource(q))
    per_node = f'sum by (node, resource_name, state) (nodedevice_agent_devices{{{q.OF_BOTH}, state="%s"}})'
    board.with_panel(
        listing(
            "Available by node",
            "As reported by each node's agent; the nodes with most available devices first.",
            f"topk(100, {per_node % 'available'})",
            {"node": "Node", "resource_name": "Resource", "Value": "Available"},
            links={"Node": _HOLDERS_LINK},
        )
    )


def _ways(board: dashboard.Dashboard) -> None:
    board.with_row(row("How devices are served"))
    for panel in fleet_panels.ways(q, width=8):
        board.with_panel(panel)
    board.with_panel(
        listing(
            "Not of one node",
            "Devices in ResourceSlices of DRA drivers that are not of one node; no NodeDevice shows them.",
            q.once("nodedevice_operator_shared_slice_devices", "driver"),
            {"driver": "Driver", "Value": "Devices"},
            width=8,
        )
    )


def _trouble(board: dashboard.Dashboard) -> None:
    board.with_row(row("What is wrong, and where"))
    board.with_panel(
        listing(
            "Not ready",
            "The reason is the first thing that is not; docs/troubleshooting.md says what to do about each.",
            q.once("nodedevice_operator_not_ready", "node, resource_name, reason", q.OF_BOTH),
            {"node": "Node", "resource_name": "Resource", "reason": "Reason", "Value": "Not ready"},
            links={"Node": _NODE_LINK},
        )
    )
    board.with_panel(
        listing(
            "Unhealthy devices",
            "Nodes with devices that are not healthy; the NodeDevice names each device, with its reason.",
            q.once("nodedevice_operator_unhealthy_devices", "node, resource_name", q.OF_BOTH),
            {"node": "Node", "resource_name": "Resource", "Value": "Unhealthy"},
            links={"Node": _NODE_LINK},
        )
    )
    board.with_panel(
        over_time(
            "Agents",
            "By their Lease. Withdrawn: silent for so long that free devices are not offered any more.",
            {"{{state}}": f"sum by (state) ({q.once('nodedevice_operator_agents', 'state')})"},
            width=8,
        )
    )
    board.with_panel(
        over_time(
            "Repaired drift",
            "Foreign changes of advertised capacity that were repaired, by what had happened to the number.",
            {"{{cause}}": q.count_in_range("nodedevice_operator_drift_repairs_total", "cause")},
            width=8,
        )
    )
    board.with_panel(
        over_time(
            "Device plugins connected",
            "Nodes where the resource's plugin is connected to the agent.",
            {"{{resource_name}}": f"sum by (resource_name) (nodedevice_agent_endpoint_running{{{q.OF_BOTH}}})"},
            width=8,
        )
    )
