"""The dashboard Who uses what: which namespaces and pods hold which devices, and who waits for some."""

from grafana_foundation_sdk.builders import dashboard

from charts.dashboards import queries as q
from charts.dashboards.frame import FLEET_UID, HOLDERS_UID, KEPT, frame, variable
from charts.dashboards.panels import PERCENT, WARN, any_is_bad, bars, listing, number, over_time, row

_OF_NAMESPACE = f'{q.OF_RESOURCE}, namespace=~"$namespace"'
_OF_POD = f'{q.OF_BOTH}, namespace=~"$namespace"'
_HELD = q.once("nodedevice_operator_allocated_devices", "namespace, resource_name", _OF_NAMESPACE)
_BY_POD = f"sum by (namespace, pod, node, resource_name) (nodedevice_agent_allocated_devices{{{_OF_POD}}})"


def holders() -> dashboard.Dashboard:
    board = frame(
        HOLDERS_UID,
        "nodedevice / Who uses what",
        "Namespaces and pods with their devices, their share of the cluster, and pending pods.",
    ).with_variable(variable("namespace", "Namespace", 'nodedevice_operator_allocated_devices{cluster=~"$cluster"}'))
    for add in (_now, _namespaces, _pods):
        add(board)
    return board


def _now(board: dashboard.Dashboard) -> None:
    waiting = f"sum(nodedevice_agent_pods_waiting{{{q.OF_BOTH}}})"
    for panel in (
        number("Devices in use", "By pods of the selected namespaces, in the whole cluster.", f"sum({_HELD})", width=5),
        number(
            "Namespaces", "Namespaces with devices in use.", f"count(sum by (cluster, namespace) ({_HELD}))", width=5
        ),
        number(
            "Pods", "Pods with devices, on the selected nodes.", f"count(sum by (namespace, pod) ({_BY_POD}))", width=5
        ),
        number(
            "Pending pods", "Bound to a selected node, without devices.", waiting, width=5, thresholds=any_is_bad(WARN)
        ),
        number("Available", "Devices that a pod could get now.", q.devices("available")),
    ):
        board.with_panel(panel)


def _namespaces(board: dashboard.Dashboard) -> None:
    board.with_row(row("Namespaces"))
    board.with_panel(
        over_time(
            "Devices in use by namespace",
            "As the operator counts them in all NodeDevices.",
            {"{{namespace}}": f"topk(20, sum by (namespace) ({_HELD}))"},
            stacked=True,
        )
    )
    share = f"sum by (resource_name, namespace) ({_HELD})"
    board.with_panel(
        bars(
            "Share of the healthy devices",
            "Share of a resource's healthy devices that a namespace uses; the 20 largest.",
            "{{namespace}} {{resource_name}}",
            f"topk(20, {share} / on (resource_name) group_left () ({q.devices('healthy', 'resource_name')} > 0))",
            unit=PERCENT,
            most=1,
        )
    )
    board.with_panel(
        listing(
            "Holdings",
            "Every namespace with devices.",
            f"sum by (namespace, resource_name) ({_HELD})",
            {"namespace": "Namespace", "resource_name": "Resource", "Value": "Devices"},
            links={"Namespace": f"/d/{HOLDERS_UID}?{KEPT}&var-namespace=${{__value.text}}"},
        )
    )
    board.with_panel(
        over_time(
            "In use and available by resource",
            "In the whole cluster, by pods of all namespaces.",
            {
                "{{resource_name}} in use": q.devices("allocated", "resource_name"),
                "{{resource_name}} available": q.devices("available", "resource_name"),
            },
        )
    )


def _pods(board: dashboard.Dashboard) -> None:
    board.with_row(row("Pods"))
    board.with_panel(
        listing(
            "Devices by pod",
            "As reported by each node's agent; `kubectl get poddevices -A` names the devices. The 200 largest.",
            f"topk(200, {_BY_POD})",
            {"namespace": "Namespace", "pod": "Pod", "node": "Node", "resource_name": "Resource", "Value": "Devices"},
            links={"Node": f"/d/{FLEET_UID}?{KEPT}&var-node=${{__value.text}}"},
            width=24,
            height=12,
        )
    )
    board.with_panel(
        over_time(
            "Devices in use by node",
            "On the selected nodes; the ten with most.",
            {"{{node}}": f"topk(10, sum by (node) (nodedevice_agent_allocated_devices{{{_OF_POD}}}))"},
        )
    )
    board.with_panel(
        listing(
            "Nodes with pending pods",
            "Their pods are bound, without devices yet; `status.waiting` of the NodeDevice names the pods and the reason.",
            f"sum by (node, resource_name) (nodedevice_agent_pods_waiting{{{q.OF_BOTH}}}) > 0",
            {"node": "Node", "resource_name": "Resource", "Value": "Pending pods"},
            links={"Node": f"/d/{FLEET_UID}?{KEPT}&var-node=${{__value.text}}"},
        )
    )
