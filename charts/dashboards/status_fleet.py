"""The dashboard Fleet for those who scrape kube-state-metrics alone: what NodeDevices say, and nothing of the programs."""

from grafana_foundation_sdk.builders import dashboard

from charts.dashboards import queries as q
from charts.dashboards import status_queries as s
from charts.dashboards.frame import KEPT, STATUS, STATUS_FLEET_UID, STATUS_HOLDERS_UID, frame
from charts.dashboards.panels import MOMENT, PERCENT, WARN, any_is_bad, bars, listing, number, over_time, row, steps

_NODE_LINK = f"/d/{STATUS_FLEET_UID}?{KEPT}&var-node=${{__value.text}}"
_HOLDERS_LINK = f"/d/{STATUS_HOLDERS_UID}?{KEPT}&var-node=${{__value.text}}"
_OF_NODE_DEVICE = {"node": "Node", "resource_name": "Resource"}


def fleet() -> dashboard.Dashboard:
    board = frame(
        STATUS_FLEET_UID,
        "nodedevice / Fleet (kube-state-metrics)",
        "Devices of all nodes, as their NodeDevices say: how many there are, work, are held and can be had.",
        STATUS,
    )
    for add in (_now, _devices, _ways, _trouble, _agents):
        add(board)
    return board


def _now(board: dashboard.Dashboard) -> None:
    silent = f"count by (cluster, node) ({s.condition('AgentReady')} == 0)"
    away = s.listed("status_endpoint", "state", ', state!="Running"')
    for panel in (
        number("Devices", "Every device that a device plugin lists.", s.devices("total")),
        number("Held", "Devices that pods hold.", s.devices("allocated")),
        number("Available", "Devices that a pod could get now.", s.devices("available")),
        number("Broken", "Devices that are not healthy, held or not.", s.unhealthy(), thresholds=any_is_bad()),
        number(
            "Cordoned", "Devices that an administrator took out.", s.devices("cordoned"), thresholds=any_is_bad(WARN)
        ),
        number(
            "In use",
            "Share of the healthy devices that pods hold.",
            f"{s.devices('allocated')} / {s.devices('healthy')}",
            unit=PERCENT,
            thresholds=steps(0.9, 0.98),
        ),
        number("Nodes", "That have a NodeDevice.", f"count(count by (cluster, node) ({s.number('total')}))"),
        number(
            "NodeDevices not ready",
            "Resources of a node where something that pods need is not there; the table below names them.",
            f"count({s.not_ready()}) or vector(0)",
            thresholds=any_is_bad(),
        ),
        number(
            "Conflicts",
            "Resources that another field manager owns on the Node: the operator does not write them.",
            f"sum({s.condition('Conflict')}) or vector(0)",
            thresholds=any_is_bad(),
        ),
        number(
            "Silent agents",
            "Nodes whose agent does not renew its Lease.",
            f"count({silent}) or vector(0)",
            thresholds=any_is_bad(),
        ),
        number(
            "Device plugins away",
            "Resources of a node whose device plugin is not connected.",
            f"sum({away}) or vector(0)",
            thresholds=any_is_bad(WARN),
        ),
        number(
            "Releasing",
            "Devices of pods that are over, until their containers are.",
            s.devices("releasing"),
        ),
    ):
        board.with_panel(panel)


def _devices(board: dashboard.Dashboard) -> None:
    board.with_row(row("Devices"))
    states = ("available", "allocated", "releasing", "reserved", "cordoned")
    board.with_panel(
        over_time(
            "Devices by state",
            "Of the selected resources and nodes. Releasing: the pod is over and its container is not.",
            {**{state: s.devices(state) for state in states}, "broken": s.unhealthy()},
        )
    )
    board.with_panel(
        bars(
            "In use by resource",
            "Share of each resource's healthy devices that pods hold.",
            "{{resource_name}}",
            f"{s.devices('allocated', 'resource_name')} / ({s.devices('healthy', 'resource_name')} > 0)",
            unit=PERCENT,
            most=1,
            thresholds=steps(0.9, 0.98),
        )
    )
    board.with_panel(
        over_time(
            "Broken by resource",
            "Devices that are not healthy. A resource whose plugin is away has all of them here.",
            {"{{resource_name}}": s.unhealthy("resource_name")},
            stacked=True,
        )
    )
    board.with_panel(
        listing(
            "Available by node",
            "The nodes with most available devices first.",
            f"topk(100, {s.number('available')})",
            {**_OF_NODE_DEVICE, "Value": "Available"},
            links={"Node": _HOLDERS_LINK},
        )
    )


def _ways(board: dashboard.Dashboard) -> None:
    board.with_row(row("How devices are given out"))
    board.with_panel(
        over_time(
            "Devices by who gives them out",
            "nodedevice: the agents. kubelet, dra: the kubelet and DRA drivers, of which the devices are only shown.",
            {"{{served_by}}": s.served("served_by")},
            stacked=True,
        )
    )
    board.with_panel(
        listing(
            "Resources by who gives them out",
            "One name may be given out in several ways, on different nodes. Of DRA, the driver and its pool.",
            s.served("served_by, resource_name"),
            {"served_by": "Served by", "resource_name": "Resource", "Value": "Devices"},
        )
    )


def _trouble(board: dashboard.Dashboard) -> None:
    board.with_row(row("What is wrong, and where"))
    board.with_panel(
        listing(
            "Not ready",
            "The reason is the first thing that is not; docs/troubleshooting.md says what to do about each.",
            s.not_ready(),
            {**_OF_NODE_DEVICE, "reason": "Reason"},
            links={"Node": _NODE_LINK},
        )
    )
    broken = s.listed("status_device_since", "device_id, reason, presence", ', health!="Healthy"')
    board.with_panel(
        listing(
            "Broken devices",
            "Those that a NodeDevice lists one by one, with the reason that their plugin gave; the latest first.",
            f"topk(200, {broken}) * 1000",
            {**_OF_NODE_DEVICE, "device_id": "Device", "reason": "Reason", "presence": "Presence", "Value": "Since"},
            links={"Node": _NODE_LINK},
            unit=MOMENT,
        )
    )
    board.with_panel(
        listing(
            "Cordoned devices",
            "Devices that an administrator took out, and what they noted; * is every device of the resource on that node.",
            s.listed("spec_cordon_info", "device_id, reason, by, at"),
            {**_OF_NODE_DEVICE, "device_id": "Device", "reason": "Reason", "by": "By", "at": "At"},
            links={"Node": _NODE_LINK},
        )
    )
    board.with_panel(
        over_time(
            "Not ready by reason",
            "NodeDevices that are not Ready, whether or not they should be.",
            {"{{reason}}": f"count by (reason) ({s.condition('Ready')} == 0)"},
        )
    )


def _agents(board: dashboard.Dashboard) -> None:
    board.with_row(row("Agents and device plugins"))
    board.with_panel(
        over_time(
            "Device plugins",
            "Resources of a node by the connection of their plugin. Gone: away for longer than its grace period.",
            {"{{state}}": f"sum by (state) ({s.listed('status_endpoint', 'state')})"},
        )
    )
    nodes = q.once("kube_nodedevice_info", "node, version, runtime", q.OF_BOTH)
    board.with_panel(
        over_time(
            "Agents by version and runtime",
            "Nodes by the agent that wrote their NodeDevices last, and by how devices reach containers there.",
            {"{{version}} {{runtime}}": f"count by (version, runtime) ({nodes})"},
        )
    )
