"""Derives the conditions that the agent sets on a NodeDevice from a snapshot. Pure.

A condition's time stamp is the time of its last change of status: until then it is copied from the observed status.
"""

from collections.abc import Mapping

from msgspec.structs import replace
from nodedevice_api.names import AGENT_CONDITIONS, Condition, Reason
from nodedevice_api.nodedevice import ConditionStatus, NodeDeviceStatus

from nodedevice_agent.devicemanager.resource_name_limit import MAX_NAMES
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.snapshot import Snapshot

MAX_MESSAGE = 2048
# the most plugins of one resource in a message
MAX_SOCKETS = 4
# status, reason and message
ConditionValue = tuple[str, str, str]

_NOT_INJECTED: ConditionValue = (
    "False",
    Reason.RUNTIME_NONE,
    "devices do not reach containers (--delivery none), so only devices in use are advertised: set --delivery auto, nri or "
    "kubelet, or --advertise-without-injection for pods that need none in their containers",
)

_RUNNING: ConditionValue = ("True", Reason.ENDPOINT_RUNNING, "the device plugin is connected")
_NOT_CONFIGURED: ConditionValue = (
    "False",
    Reason.NOT_CONFIGURED,
    "no configuration of this node names this resource any more; this object is deleted once no pod holds or awaits a device and "
    "none is cordoned; to serve it again, name it in a NodeDeviceConfig that selects this node or in the agent's configuration",
)
_CURRENT: ConditionValue = ("True", Reason.WATCHES_CURRENT, "changes of pods and cordons reach the agent")
_STALE: ConditionValue = (
    "False",
    Reason.WATCH_STALE,
    "the API server has sent nothing for more than 90 s over a watch of pods or of this object, so changes reach the agent late "
    "or not at all: check proxies and load balancers between this node and the API server",
)


def of_snapshot(
    now: Snapshot,
    unsaved: str,
    notes: str,
    registered: ConditionValue | None,
    injectable: ConditionValue | None,
    *,
    is_watch_stale: bool,
) -> dict[str, ConditionValue]:
    """The conditions by type. For the arguments see node_device_status()."""
    return {
        Condition.REGISTERED: _registered(now, unsaved, notes, registered or _RUNNING),
        Condition.HEALTHY: _healthy(now),
        Condition.INJECTABLE: injectable or _NOT_INJECTED,
        Condition.WATCHES_CURRENT: _STALE if is_watch_stale else _CURRENT,
    }


def with_times(before: NodeDeviceStatus, wall_time: str, values: Mapping[str, ConditionValue]) -> list[ConditionStatus]:
    """Conditions for the status. before: the observed status. wall_time: RFC 3339, whole seconds."""
    earlier = {c.type: c for c in before.conditions}
    kinds = (kind for kind in AGENT_CONDITIONS if kind in values)
    return [_condition(kind, *values[kind], earlier.get(kind), wall_time) for kind in kinds]


def condition_of(status: NodeDeviceStatus, kind: str) -> ConditionValue | None:
    """None if the status lacks it."""
    return next(((c.status, c.reason, c.message) for c in status.conditions if c.type == kind), None)


def with_condition(
    status: NodeDeviceStatus, before: NodeDeviceStatus, wall_time: str, kind: str, value: ConditionValue
) -> NodeDeviceStatus:
    """Add a condition that exists only while it holds, behind the others. before, wall_time: as above."""
    earlier = next((c for c in before.conditions if c.type == kind), None)
    return replace(status, conditions=[*status.conditions, _condition(kind, *value, earlier, wall_time)])


def kept_since(before: str, wall_time: str, *, is_same: bool) -> str:
    """The observed time stamp while the entry is the same."""
    return before if is_same and before else wall_time


def _condition(
    kind: str, status: str, reason: str, message: str, earlier: ConditionStatus | None, wall_time: str
) -> ConditionStatus:
    before = earlier.last_transition_time if earlier is not None else ""
    return ConditionStatus(
        type=kind,
        status=status,
        reason=reason,
        message=message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 1]}…",
        last_transition_time=kept_since(before, wall_time, is_same=earlier is not None and earlier.status == status),
    )


def _registered(now: Snapshot, unsaved: str, notes: str, running: ConditionValue) -> ConditionValue:
    if now.lost_to is not None:
        return "False", Reason.PLACE_TAKEN, place_taken(now.lost_to)
    if now.is_not_configured:
        return _NOT_CONFIGURED
    if now.state is EndpointState.GONE:
        return "False", Reason.ENDPOINT_GONE, "no device plugin has served this resource for five minutes"
    if now.state is EndpointState.STOPPED:
        hangs = "the device plugin is connected and does not respond: it hangs, or is paused"
        gone = "the device plugin is disconnected; it must register again"
        return "False", Reason.ENDPOINT_STOPPED, hangs if now.is_silent else gone
    if not now.is_live:
        return "False", Reason.DEVICE_LIST_PENDING, "the device plugin has registered; its device list is pending"
    if unsaved:
        return "True", Reason.CHECKPOINT_NOT_WRITTEN, unsaved
    if notes:
        return "True", Reason.CHECKPOINT_UNREADABLE, notes
    if now.id_error:
        return "True", Reason.DEVICES_REFUSED, now.id_error
    if len(now.sockets) > 1:
        message = f"{len(now.sockets)} device plugins serve this resource, and the list of the newest counts; stop all but one: "
        return "True", Reason.SEVERAL_PLUGINS, message + ", ".join(now.sockets[-MAX_SOCKETS:])
    if now.unknown_cordons:
        named = ", ".join(now.unknown_cordons)
        message = f"spec.cordonedDevices has IDs that the device plugin does not list: {named}; correct or remove them"
        return "True", Reason.CORDONED_DEVICE_UNKNOWN, message
    return running


def place_taken(by: str) -> str:
    whose = f"{by} has its place" if by else "others have all places"
    return (
        f"a node has {MAX_NAMES} resource names at most, and {whose}; this object is deleted once no pod holds or awaits a device "
        "and none is cordoned; stop device plugins that this node does not need, and have this one register again"
    )


def _healthy(now: Snapshot) -> ConditionValue:
    if now.total == 0 and now.is_not_configured:
        return "False", Reason.NO_DEVICES, "no device plugin serves this resource"
    if now.total == 0:
        return "False", Reason.NO_DEVICES, _with_plugin_message("the device plugin lists no devices", now)
    if not now.is_live:
        message = f"no device plugin is connected: none of {now.total} devices counts as healthy"
        return "False", Reason.NONE_HEALTHY, message
    return healthy_by_count(now)


def healthy_by_count(now: Snapshot) -> ConditionValue:
    """The condition Healthy of a resource that is served and has devices."""
    noun = "devices" if now.part_rules is None else "parts"
    shown = [f"{device.id} ({device.reason})" for device in now.unhealthy]
    unhealthy = now.total - now.healthy
    if unhealthy == 0:
        return "True", Reason.ALL_HEALTHY, _with_plugin_message(f"all {now.total} {noun} are healthy", now)
    of_shown = sum(d.parts.total - d.parts.healthy if d.parts is not None else 1 for d in now.unhealthy)
    named = ", ".join(shown) + (", …" if unhealthy > of_shown else "")
    reason = Reason.NONE_HEALTHY if now.healthy == 0 else Reason.SOME_UNHEALTHY
    return "False", reason, _with_plugin_message(f"{unhealthy} of {now.total} {noun} are unhealthy: {named}", now)


def _with_plugin_message(message: str, now: Snapshot) -> str:
    """Append the plugin's message about the whole list, while the plugin is connected."""
    return f"{message}; {now.plugin_message}" if now.plugin_message and now.is_live else message
