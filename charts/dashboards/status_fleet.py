"""The Fleet dashboard for clusters that only scrape kube-state-metrics: based on NodeDevices, without the programs' metrics."""

from grafana_foundation_sdk.builders import dashboard

from charts.dashboards import fleet_panels
from charts.dashboards import queries as q
from charts.dashboards import status_queries as s
from charts.dashboards.frame import KEPT, STATUS, STATUS_FLEET_UID, STATUS_HOLDERS_UID, frame
from charts.dashboards.panels import BYTES, MOMENT, PERCENT, WARN, any_is_bad, listing, number, over_time, row

_NODE_LINK = f"/d/{STATUS_FLEET_UID}?{KEPT}&var-node=${{__value.text}}"
_HOLDERS_LINK = f"/d/{STATUS_HOLDERS_UID}?{KEPT}&var-node=${{__value.text}}"
_OF_NODE_DEVICE = {"node": "Node", "resource_name": "Resource"}


def fleet() -> dashboard.Dashboard:
    board = frame(
        STATUS_FLEET_UID,
        "nodedevice / Fleet (kube-state-metrics)",
        "Devices of all nodes by state, from their NodeDevices: healthy, in use, free.",
        STATUS,
    )
    for add in (_now, _devices, _parts, _ways, _trouble, _agents):
        add(board)
    return board


def _now(board: dashboard.Dashboard) -> None:
    silent = f"count by (cluster, node) ({s.condition('AgentReady')} == 0)"
    away = s.listed("status_endpoint", "state", ', state!="Running"')
    for panel in (
        *fleet_panels.numbers(s),
        number("Nodes", "That have a NodeDevice.", f"count(count by (cluster, node) ({s.number('total')}))"),
        fleet_panels.not_ready(f"count({s.not_ready()}) or vector(0)"),
        fleet_panels.conflicts(f"sum({s.condition('Conflict')}) or vector(0)"),
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
            "Pending pods",
            "Bound to a node, without devices yet.",
            f"sum({s.number('waiting_pods')})",
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
            {**{state: s.devices(state) for state in states}, "unhealthy": s.unhealthy()},
        )
    )
    board.with_panel(fleet_panels.in_use_by_resource(s))
    board.with_panel(fleet_panels.broken_by_resource(s))
    board.with_panel(
        listing(
            "Available by node",
            "The nodes with most available devices first.",
            f"topk(100, {s.number('available')})",
            {**_OF_NODE_DEVICE, "Value": "Available"},
            links={"Node": _HOLDERS_LINK},
        )
    )


def _parts(board: dashboard.Dashboard) -> None:
    board.with_row(row("Parts, models and memory"))
    board.with_panel(
        listing(
            "Parts in use by device",
            "Physical devices with parts in use: how much of each is allocated, the fullest first.",
            f"topk(100, {s.of_devices('parts_allocated')} / {s.of_devices('parts')})",
            {**_OF_NODE_DEVICE, "device_id": "Device", "Value": "In use"},
            links={"Node": _HOLDERS_LINK},
            unit=PERCENT,
        )
    )
    board.with_panel(
        over_time(
            "Largest free piece",
            "The most available parts of one physical device, by resource: a container with more stays pending.",
            {"{{resource_name}}": f"max by (resource_name) ({s.parts_of_one_device()})"},
        )
    )
    board.with_panel(
        over_time(
            "Memory of parts",
            "Resources whose parts are units of memory: the units, and how much of them is in use.",
            {"total": f"sum({s.memory_of('parts')})", "allocated": f"sum({s.memory_of('parts_allocated')})"},
            unit=BYTES,
        )
    )
    board.with_panel(
        over_time(
            "Memory by model",
            "Of listed devices whose plugin says it, those of each resource: one that is offered twice counts twice.",
            {"{{model}}": s.by_model("memory_bytes")},
            unit=BYTES,
        )
    )


def _ways(board: dashboard.Dashboard) -> None:
    board.with_row(row("How devices are served"))
    for panel in fleet_panels.ways(s):
        board.with_panel(panel)


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
    board.with_panel(
        listing(
            "Pending pods",
            "Pods that are bound to a node, without devices yet, with the reason; the latest first.",
            f"{s.pending()} * 1000",
            {"namespace": "Namespace", "pod": "Pod", **_OF_NODE_DEVICE, "reason": "Reason", "Value": "Since"},
            links={"Node": _NODE_LINK},
            unit=MOMENT,
        )
    )
    broken = s.listed("status_device_since", "device_id, reason, presence", ', health!="Healthy"')
    board.with_panel(
        listing(
            "Unhealthy devices",
            "Unhealthy devices that a NodeDevice lists, with the plugin's reason; the latest first.",
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
    nodes = q.once("kube_nodedevice_info", "node, version, delivery", q.OF_BOTH)
    board.with_panel(
        over_time(
            "Agents by version and delivery",
            "Nodes by the agent that wrote their NodeDevices last, and by how devices reach containers there.",
            {"{{version}} {{delivery}}": f"count by (version, delivery) ({nodes})"},
        )
    )
