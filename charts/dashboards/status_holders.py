"""The dashboard Who uses what for clusters that only scrape kube-state-metrics: which pods hold which devices, and since when.

NodeDevices and PodDevices list a pod's devices as text. So this dashboard counts pods and containers, and devices by node only.
"""

from grafana_foundation_sdk.builders import dashboard

from charts.dashboards import status_queries as s
from charts.dashboards.frame import KEPT, STATUS, STATUS_FLEET_UID, STATUS_HOLDERS_UID, frame, variable
from charts.dashboards.panels import MOMENT, any_is_bad, bars, listing, number, over_time, row

_NODE_LINK = f"/d/{STATUS_FLEET_UID}?{KEPT}&var-node=${{__value.text}}"
_NAMESPACE_LINK = f"/d/{STATUS_HOLDERS_UID}?{KEPT}&var-namespace=${{__value.text}}"
_BROKEN = ', health!="Healthy"'
_POD = {"namespace": "Namespace", "pod": "Pod", "node": "Node"}


def holders() -> dashboard.Dashboard:
    board = frame(
        STATUS_HOLDERS_UID,
        "nodedevice / Who uses what (kube-state-metrics)",
        "Pods with their devices, since when, and the devices' health.",
        STATUS,
    ).with_variable(variable("namespace", "Namespace", 'kube_poddevice_info{cluster=~"$cluster"}'))
    for add in (_now, _namespaces, _pods):
        add(board)
    return board


def _now(board: dashboard.Dashboard) -> None:
    for panel in (
        number("Pods", "Pods with devices.", f"count({s.pods()}) or vector(0)"),
        number("Containers", "Containers with whole devices.", f"count({s.containers()}) or vector(0)"),
        number("Namespaces", "Namespaces with devices in use.", f"count(count by (cluster, namespace) ({s.pods()}))"),
        number(
            "Pods with unhealthy devices",
            "Pods with an unhealthy device; the table below names them.",
            f"count({s.pods(_BROKEN)}) or vector(0)",
            thresholds=any_is_bad(),
        ),
        number("Devices in use", "On the selected nodes, by pods of all namespaces.", s.devices("allocated")),
        number("Available", "Devices that a pod could get now.", s.devices("available")),
    ):
        board.with_panel(panel)


def _namespaces(board: dashboard.Dashboard) -> None:
    board.with_row(row("Namespaces"))
    board.with_panel(
        over_time(
            "Pods with devices by namespace",
            "The 20 namespaces with most.",
            {"{{namespace}}": f"topk(20, count by (namespace) ({s.pods()}))"},
            stacked=True,
        )
    )
    board.with_panel(
        bars(
            "Containers by namespace and resource",
            "Containers with whole devices now; the 20 largest.",
            "{{namespace}} {{resource_name}}",
            f"topk(20, count by (namespace, resource_name) ({s.containers()}))",
        )
    )
    board.with_panel(
        listing(
            "Namespaces with devices",
            "Every namespace with devices in use.",
            f"count by (namespace) ({s.pods()})",
            {"namespace": "Namespace", "Value": "Pods"},
            links={"Namespace": _NAMESPACE_LINK},
        )
    )
    board.with_panel(
        over_time(
            "In use and available by resource",
            "On the selected nodes, by pods of all namespaces.",
            {
                "{{resource_name}} in use": s.devices("allocated", "resource_name"),
                "{{resource_name}} available": s.devices("available", "resource_name"),
            },
        )
    )


def _pods(board: dashboard.Dashboard) -> None:
    board.with_row(row("Pods"))
    what = {**_POD, "resources": "Resources", "devices": "Devices", "health": "Health", "Value": "Since"}
    for title, description, query, newest_last in (
        ("Pods that use devices", "The 200 pods that got their devices last.", f"topk(200, {s.pods_since()})", False),
        (
            "Pods that use unhealthy devices",
            "A pod keeps a device that broke; delete the pod to give it another. The longest first.",
            s.pods_since(_BROKEN),
            True,
        ),
    ):
        board.with_panel(
            listing(
                title,
                description,
                query,
                what,
                links={"Namespace": _NAMESPACE_LINK, "Node": _NODE_LINK},
                unit=MOMENT,
                ascending=newest_last,
                width=24,
            )
        )
    board.with_panel(
        listing(
            "Longest in use",
            "The 100 containers that have had whole devices for the longest time.",
            f"bottomk(100, {s.containers()}) * 1000",
            {**_POD, "container": "Container", "resource_name": "Resource", "Value": "Since"},
            links={"Node": _NODE_LINK},
            unit=MOMENT,
            ascending=True,
        )
    )
    board.with_panel(
        over_time(
            "Devices in use by node",
            "The ten nodes with the most, by pods of all namespaces.",
            {"{{node}}": f"topk(10, {s.devices('allocated', 'node')})"},
        )
    )
